-- The memory that one end of a connection offers to its peer, and the data that RDMA Read and RDMA
-- Write move into and out of it.
--
-- A region is one segment of a chunk. `access` says what the peer may do: "read" or "write".
-- Nothing here depends on Wireshark.

return function(walk)
  local Memory = {}
  Memory.__index = Memory

  function Memory.new()
    return setmetatable({ handles = {}, reads = {} }, Memory)
  end

  -- Offers a segment, for the call `call`. Returns its region.
  function Memory:offer(segment, access, call)
    local region = {
      handle = segment.rdma_handle, length = segment.rdma_length, offset = segment.rdma_offset,
      access = access, call = call, pieces = {}, filled = 0, open = true,
    }
    local list = self.handles[region.handle] or {}
    self.handles[region.handle] = list
    table.insert(list, region)
    return region
  end

  -- Finds the memory for an access of `length` bytes. Returns the region and the offset in it, or
  -- nil and the rule that the access violates, with a text.
  function Memory:find(handle, offset, length, access)
    local rule, text = "unknown_handle", string.format("handle 0x%08x", handle)
    local list = self.handles[handle] or {}
    -- The newest first: handles are used again.
    for n = #list, 1, -1 do
      local region = list[n]
      if region.open then
        local at = walk.distance(region.offset, offset)
        if not at or at < 0 or at + length > region.length then
          rule = "out_of_bounds"
          text = length .. " bytes at " .. (at or "?") .. " in a segment of " .. region.length
        elseif region.access ~= access then
          rule, text = "wrong_access", "offered for RDMA " .. region.access
        else
          return region, at
        end
      end
    end
    return nil, rule, text
  end

  -- Returns whether a handle is offered.
  function Memory:knows(handle)
    for _, region in ipairs(self.handles[handle] or {}) do
      if region.open then
        return true
      end
    end
    return false
  end

  -- Withdraws the regions of a call that has ended.
  function Memory:withdraw(regions)
    for _, region in ipairs(regions) do
      region.open = false
      local left = {}
      for _, other in ipairs(self.handles[region.handle] or {}) do
        if other ~= region then
          table.insert(left, other)
        end
      end
      self.handles[region.handle] = #left > 0 and left or nil
    end
  end

  -- Stores data that was moved. Data that comes again replaces the other.
  function Memory.store(region, at, bytes)
    local before = region.pieces[at]
    region.filled = region.filled + #bytes - (before and #before or 0)
    region.pieces[at] = bytes
  end

  function Memory.complete(region)
    return region.filled >= region.length
  end

  -- Returns the first `length` bytes of a region, or nil if data is missing in the capture.
  function Memory.content(region, length)
    local order = {}
    for at in pairs(region.pieces) do
      table.insert(order, at)
    end
    table.sort(order)
    local parts, have = {}, 0
    for _, at in ipairs(order) do
      if at ~= have then
        break
      end
      table.insert(parts, region.pieces[at])
      have = have + #region.pieces[at]
    end
    if have < length then
      return nil
    end
    return table.concat(parts):sub(1, length)
  end

  -- Notes that this end reads `length` bytes at `at` of the peer's `region` into its own sink. A
  -- read without a region is a violation, but its response is expected.
  function Memory:reading(sink, region, at, length)
    table.insert(self.reads, {
      handle = sink.handle, offset = sink.offset, number = sink.number,
      region = region, at = at, length = length, left = length,
    })
  end

  -- Takes data of a read response. `matches(read)` returns the offset of the data in the read, or
  -- nil if it belongs to another. Returns the read, or nil.
  function Memory:response(matches, bytes)
    for n, read in ipairs(self.reads) do
      local at = matches(read)
      if at and at >= 0 and at + #bytes <= read.length then
        read.left = read.left - #bytes
        if read.left <= 0 then
          table.remove(self.reads, n)
        end
        if read.region then
          Memory.store(read.region, read.at + at, bytes)
        end
        return read
      end
    end
    return nil
  end

  return Memory
end
