-- RPC-over-RDMA on InfiniBand and RoCE: packets of reliable connections become events of
-- messages.lua.
--
-- A packet names the queue pair that it goes to, not the one that it comes from. Which two
-- directions are one connection follows from what is in them: an XID or a handle that the other one
-- named.

return function(messages, show, walk, state)
  -- Opcodes of reliable connections (InfiniBand architecture specification, section 9.2.1): what
  -- they are, and whether they begin and end a message.
  local OPCODES = {
    [0] = { "send", true, false }, [1] = { "send", false, false }, [2] = { "send", false, true },
    [3] = { "send", false, true }, [4] = { "send", true, true }, [5] = { "send", true, true },
    [6] = { "write", true, false }, [7] = { "write", false, false }, [8] = { "write", false, true },
    [9] = { "write", false, true }, [10] = { "write", true, true }, [11] = { "write", true, true },
    [12] = { "read_request", true, true }, [13] = { "read_response", true, false },
    [14] = { "read_response", false, false }, [15] = { "read_response", false, true },
    [16] = { "read_response", true, true },
    -- Send With Invalidate.
    [22] = { "send", false, true, true }, [23] = { "send", true, true, true },
  }

  local fields = {}
  for name, abbreviation in pairs({
    opcode = "infiniband.bth.opcode", pad = "infiniband.bth.padcnt",
    queue_pair = "infiniband.bth.destqp", number = "infiniband.bth.psn",
    address = "infiniband.reth.va", handle = "infiniband.reth.r_key",
    length = "infiniband.reth.dmalen", invalidate = "infiniband.ieth",
  }) do
    fields[name] = Field.new(abbreviation)
  end

  local function value(name)
    local found = fields[name]()
    return found and found.value
  end

  -- The memory that a packet names.
  local function target()
    local address, handle = value("address"), value("handle")
    if not address then
      return nil
    end
    return {
      handle = handle, length = value("length"),
      offset = { high = address:higher(), low = address:lower() },
    }
  end

  -- Says whether a packet of this kind belongs to a connection whose other direction is known.
  local function answers(conn, index, kind, bytes)
    local other = conn.ends[1 - index]
    if kind == "send" then
      return #bytes >= 4 and other.calls[walk.word(bytes, 0)] ~= nil
    elseif kind == "read_response" then
      return #other.memory.reads > 0
    end
    local named = target()
    return named ~= nil and other.memory:knows(named.handle)
  end

  -- Returns the direction that a packet is of: its connection, its sender's end, and what is
  -- incomplete in it. nil if this is not RPC-over-RDMA.
  local function direction(pinfo, kind, bytes)
    local from, to = tostring(pinfo.src), tostring(pinfo.dst)
    local key = from .. " " .. to .. " " .. value("queue_pair")
    local found = state.directions[key]
    if found then
      return found
    end
    local speaks = kind == "send" and messages.dialect(bytes) ~= nil
    local back = to .. " " .. from
    local waiting = state.unpaired[back] or {}
    local chosen
    for n, other in ipairs(waiting) do
      if answers(other.conn, 1, kind, bytes) then
        chosen = n
        break
      end
    end
    -- Only one connection can have spoken first and got no answer yet.
    if not chosen and speaks and #waiting == 1 then
      chosen = 1
    end
    if chosen then
      local other = table.remove(waiting, chosen)
      found = { conn = other.conn, index = 1 }
    elseif speaks then
      found = { conn = messages.connection(), index = 0 }
      state.ports = state.ports + 2
      found.conn.port = state.ports
      local list = state.unpaired[from .. " " .. to] or {}
      state.unpaired[from .. " " .. to] = list
      table.insert(list, found)
    else
      return nil
    end
    state.directions[key] = found
    return found
  end

  -- A packet's number comes again after 2^24 others.
  local NUMBERS = 16777216
  local RECENT = 1048576

  -- Returns the frame of the earlier packet of this direction that a packet repeats. A sender that
  -- misses an acknowledgement sends again what was not acknowledged (InfiniBand architecture
  -- specification, section 9.7.5.1). Requests have numbers of their own, and so have responses.
  local function repeats(way, kind, number, frame)
    local space = kind == "read_response" and "responses" or "requests"
    way[space] = way[space] or { count = 0, counts = {}, frames = {} }
    local seen = way[space]
    seen.count = seen.count + 1
    local before = seen.counts[number]
    if before and seen.count - before < RECENT then
      return seen.frames[number]
    end
    seen.counts[number], seen.frames[number] = seen.count, frame
    return nil
  end

  local handlers = {}

  function handlers.send(way, bytes, event, is_first, is_last)
    if is_first then
      way.parts = {}
    end
    way.parts = way.parts or {}
    table.insert(way.parts, bytes)
    if not is_last then
      return nil
    end
    local whole = table.concat(way.parts)
    way.parts = nil
    if not way.conn.dialect and not messages.dialect(whole) then
      return nil
    end
    local result = way.conn:send(way.index, whole, event)
    return { result = result, whole = not is_first and whole or nil }
  end

  function handlers.write(way, bytes, event, is_first)
    if is_first then
      way.target, way.written = target(), 0
    end
    local into = way.target
    if not into then
      return nil
    end
    local low = into.offset.low + way.written
    local carry = math.floor(low / 4294967296)
    local offset = { high = into.offset.high + carry, low = low % 4294967296 }
    way.written = way.written + #bytes
    return { access = way.conn:write(way.index, into.handle, offset, bytes, event) }
  end

  -- Drops the reads of an end that lack data for good: an end that missed a response asks again for
  -- the rest of a read only. Their numbers will come again.
  local function forget_old(reads, number)
    for n = #reads, 1, -1 do
      local behind = (number - reads[n].number) % NUMBERS
      if behind >= RECENT and behind < NUMBERS / 2 then
        table.remove(reads, n)
      end
    end
  end

  function handlers.read_request(way, _, event)
    local from = target()
    if not from then
      return nil
    end
    local sink = { number = value("number") }
    forget_old(way.conn.ends[way.index].memory.reads, sink.number)
    local access = way.conn:read_request(way.index, from.handle, from.offset, from.length, sink,
      event)
    return { access = access }
  end

  function handlers.read_response(way, bytes, event, is_first, is_last)
    local number = value("number")
    if not is_last then
      way.packet = #bytes
    end
    -- The first response has the number of its request, and all but the last one are as long as packets
    -- can be (InfiniBand architecture specification, sections 9.3.3.1 and 9.7.2). So a number says where
    -- its data belongs, also when a response is missing, and when the rest of a read is asked for again.
    local function matches(read)
      local ahead = (number - read.number) % NUMBERS
      local at = is_last and read.length - #bytes or ahead * #bytes
      if is_first and ahead > 0 or is_last and not is_first and ahead == 0 then
        return nil
      elseif is_last and way.packet and at ~= ahead * way.packet then
        return nil
      end
      return ahead < NUMBERS / 2 and at or nil
    end
    return { access = way.conn:read_response(way.index, matches, bytes, event) }
  end

  local function handle(tvb, pinfo)
    local kind = OPCODES[value("opcode")]
    if not kind then
      return nil
    end
    local length = tvb:len() - (value("pad") or 0)
    local bytes = length > 0 and tvb:raw(0, length) or ""
    local way = direction(pinfo, kind[1], bytes)
    if not way or kind[1] ~= "send" and not way.conn.dialect then
      return nil
    end
    local event = { frame = pinfo.number, at = pinfo.rel_ts }
    if kind[4] then
      event.invalidate = fields.invalidate().range:uint()
    end
    local again = repeats(way, kind[1], value("number"), pinfo.number)
    local entry
    if not again then
      entry = handlers[kind[1]](way, bytes, event, kind[2], kind[3])
    elseif way.conn.dialect then
      local about = string.format("the packet of frame %d again", again)
      entry = { access = { violations = {}, payloads = {}, about = about } }
    end
    if entry then
      entry.conn, entry.length = way.conn, length
      entry.ports = { way.conn.port + way.index, way.conn.port + 1 - way.index }
    end
    return entry
  end

  local infiniband = {}

  function infiniband.dissect(tvb, pinfo, tree)
    if not fields.opcode() then
      return false
    end
    local key = "infiniband " .. pinfo.number
    local entry = state.entries[key]
    if entry == nil then
      entry = handle(tvb, pinfo) or false
      state.entries[key] = entry
    end
    if not entry then
      return false
    end
    local payload = entry.length > 0 and tvb(0, entry.length):tvb() or nil
    -- Wireshark's RPC matches replies to calls by both ports, and takes queue pairs for ports, but
    -- that of the sender is unknown here.
    local from, to = pinfo.src_port, pinfo.dst_port
    pinfo.src_port, pinfo.dst_port = entry.ports[1], entry.ports[2]
    show.entry(entry, payload, pinfo, tree)
    pinfo.src_port, pinfo.dst_port = from, to
    return true
  end

  return infiniband
end
