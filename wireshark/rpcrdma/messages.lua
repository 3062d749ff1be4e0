-- The state of connections: what each message means, given those before it.
--
-- An *end* is one side of a connection: what it announced, offered and has outstanding. Events come
-- in the order of the capture, each once: `send`, `write`, `read_request`, `read_response`. Each
-- returns a result for show.lua, which later events may complete (`response_in`). Nothing here
-- depends on Wireshark.

return function(walk, dialects, xdr, Memory, load_working_group)
  local C = xdr.constants
  local version_two, working_group = dialects[2], dialects[3]
  -- The first dialect of each version.
  local by_version = {}
  for _, dialect in ipairs(dialects) do
    by_version[dialect.version] = by_version[dialect.version] or dialect
  end

  local RPC_REPLY = 1 -- msg_type (RFC 5531, section 9)
  local NFS = 100003

  local messages = {}
  local Connection = {}
  Connection.__index = Connection

  local function new_end()
    return {
      memory = Memory.new(), calls = {}, properties = {}, outstanding = 0, granted = 1,
      messages = 0,
    }
  end

  -- `ends` are the two sides, if they are known; otherwise new ones.
  function messages.connection(one, two)
    return setmetatable({ ends = { [0] = one or new_end(), [1] = two or new_end() } }, Connection)
  end

  messages.new_end = new_end
  messages.distance = walk.distance

  local function violate(result, rule, text, node)
    table.insert(result.violations, { rule = rule, text = text, node = node })
  end

  local function new_result(about)
    return { violations = {}, payloads = {}, about = about }
  end

  -- Appends an RPC message that is complete, for the dissector of RPC.
  local function deliver(result, bytes, label)
    table.insert(result.payloads, { bytes = bytes, label = label })
  end

  -- Joins the payload stream with data items, by their positions in the whole stream (RFC 8166,
  -- section 3.4.5). Returns nil if a position is beyond the stream.
  local function join(payload, items)
    table.sort(items, function(a, b) return a.position < b.position end)
    local parts, length, taken = {}, 0, 0
    for _, item in ipairs(items) do
      local before = item.position - length
      if before < 0 or taken + before > #payload then
        return nil
      end
      table.insert(parts, payload:sub(taken + 1, taken + before))
      table.insert(parts, item.bytes)
      table.insert(parts, ("\0"):rep(walk.round_up(#item.bytes)))
      taken = taken + before
      length = item.position + #item.bytes + walk.round_up(#item.bytes)
    end
    table.insert(parts, payload:sub(taken + 1))
    return table.concat(parts)
  end

  -- ------------------------------------------------------------------------------------------
  -- Calls

  -- Groups read segments by position, and sorts these; each one's segments stay in order.
  local function read_chunks(list)
    local chunks, order = {}, {}
    for _, entry in ipairs(list) do
      local chunk = chunks[entry.position]
      if not chunk then
        chunk = { position = entry.position, regions = {} }
        chunks[entry.position] = chunk
        table.insert(order, chunk)
      end
      table.insert(chunk.regions, entry.region)
    end
    table.sort(order, function(a, b) return a.position < b.position end)
    return order
  end

  local function check_xid(result, xid, payload)
    if #payload < 8 then
      violate(result, "no_payload", #payload .. " bytes")
    elseif walk.word(payload, 0) ~= xid then
      violate(result, "xid", string.format("0x%08x in the RPC message", walk.word(payload, 0)))
    end
  end

  -- Puts a call together when all that it offers for reading has been read. `result` is that of the
  -- event that completed it.
  local function finish_call(call, result)
    if call.finished then
      return
    end
    for _, chunk in ipairs(call.reads) do
      for _, region in ipairs(chunk.regions) do
        if not Memory.complete(region) then
          return
        end
      end
    end
    call.finished = true
    local items, payload = {}, call.payload
    for _, item in ipairs(call.placed or {}) do
      table.insert(items, item)
    end
    for _, chunk in ipairs(call.reads) do
      local parts = {}
      for _, region in ipairs(chunk.regions) do
        table.insert(parts, Memory.content(region, region.length) or "")
      end
      local bytes = table.concat(parts)
      if chunk.position == 0 and not call.is_inline then
        payload = bytes
      else
        table.insert(items, { position = chunk.position, bytes = bytes })
      end
    end
    local whole = join(payload or "", items)
    if not whole then
      violate(result, "position", "the stream has " .. #(payload or "") .. " bytes")
      return
    end
    if not call.is_inline then
      check_xid(result, call.xid, whole)
    end
    call.program = #whole >= 24 and walk.word(whole, 12) or nil
    call.rpc_version = #whole >= 24 and walk.word(whole, 16) or nil
    call.procedure = #whole >= 24 and walk.word(whole, 20) or nil
    deliver(result, whole, call.reads[1] and "RPC message, with data that was read"
      or call.placed and "RPC message, put together" or "RPC message")
    for _, part in ipairs(call.parts or { call.result }) do
      part.reassembled_in = result.frame
    end
  end

  local function check_segment(result, segment)
    local last = segment.rdma_offset.low + segment.rdma_length
    if segment.rdma_offset.high == 4294967295 and last > 4294967296 then
      violate(result, "segment_wraps", string.format("handle 0x%08x", segment.rdma_handle))
    end
  end

  local function offer(call, from, segment, access, result)
    check_segment(result, segment)
    local region = from.memory:offer(segment, access, call)
    table.insert(call.regions, region)
    return region
  end

  -- Begins a call: it takes a credit, and its XID must be free.
  local function begin_call(result, from, xid)
    local before = from.calls[xid]
    if before then
      violate(result, "duplicate_xid", "called in frame " .. before.result.frame)
      from.memory:withdraw(before.regions)
      from.outstanding = from.outstanding - before.credits
    end
    local call = {
      xid = xid, result = result, regions = {}, reads = {}, writes = {}, credits = 0,
      returns = {},
    }
    from.calls[xid] = call
    result.is_call = true
    return call
  end

  -- Takes a credit for a transmission of a call.
  local function take_credit(result, from, call)
    call.credits = call.credits + 1
    from.outstanding = from.outstanding + 1
    if from.outstanding > from.granted then
      violate(result, "credits_exceeded",
        from.outstanding .. " outstanding, " .. from.granted .. " granted")
    end
  end

  function Connection:call(result, from, header)
    local message, chunks = header.message, header.chunks
    -- A call in several parts begins with the first.
    local call = header.call or begin_call(result, from, header.xid)
    if header.dialect.credits == "calls" then
      take_credit(result, from, call)
    end
    call.is_inline, call.inv_handle = message.inline, header.inv_handle
    local list, has_payload = {}, false
    for _, read in ipairs(chunks.rdma_reads) do
      local entry = read.rdma_entry
      if entry.rdma_position % 4 ~= 0 then
        violate(result, "position", entry.rdma_position .. " is not a multiple of four")
      elseif entry.rdma_position == 0 and message.inline then
        violate(result, "position", "an RPC message is inline and at position zero")
      end
      has_payload = has_payload or entry.rdma_position == 0
      local region = offer(call, from, entry.rdma_target, "read", result)
      table.insert(list, { position = entry.rdma_position, region = region })
    end
    for n, write in ipairs(chunks.rdma_writes) do
      call.writes[n] = {}
      for _, segment in ipairs(write.rdma_entry.rdma_target) do
        table.insert(call.writes[n], offer(call, from, segment, "write", result))
      end
    end
    if chunks.rdma_reply then
      call.reply = {}
      for _, segment in ipairs(chunks.rdma_reply.rdma_target) do
        table.insert(call.reply, offer(call, from, segment, "write", result))
      end
    end
    call.payload, call.placed = header.payload, header.placed
    call.reads = read_chunks(list)
    if message.inline then
      check_xid(result, header.xid, header.payload)
      -- Later positions count the items before them too; they are checked when all is there.
      local first = call.reads[1] and call.reads[1].position or 0
      if first > #header.payload and not header.placed then
        violate(result, "position", first .. " in a payload of " .. #header.payload)
      end
    elseif not has_payload then
      violate(result, "no_payload", "there is no read chunk at position zero")
      return
    end
    finish_call(call, result)
  end

  -- ------------------------------------------------------------------------------------------
  -- Replies

  -- Ends the call that a message answers. Returns it, or nil. The credits of an error never raise
  -- the limit, but may lower it (RFC 8166, section 3.3.3; version-two-01, section 5).
  local function end_call(result, to, xid, credit, is_error)
    local call = to.calls[xid]
    if not call then
      return nil
    end
    to.calls[xid] = nil
    to.outstanding = math.max(0, to.outstanding - call.credits)
    credit = math.max(1, credit)
    to.granted = is_error and math.min(to.granted, credit) or credit
    if result.invalidate and not result.invalidate_checked then
      result.invalidate_checked = true
      -- Version 2 of the working group names the handle; the others allow any of the call's.
      local known = call.inv_handle == result.invalidate
      for _, region in ipairs(call.inv_handle and {} or call.regions) do
        known = known or region.handle == result.invalidate
      end
      if call.inv_handle == 0 then
        violate(result, "no_invalidation")
      elseif not known then
        violate(result, "invalidated", string.format("handle 0x%08x", result.invalidate))
      end
    end
    call.result.response_in = result.frame
    result.request_in = call.result.frame
    result.time = result.at - call.result.at
    return call
  end

  -- Takes the segments that a reply returns for a chunk. Returns the data in them, or nil if it is
  -- not in the capture. `is_strict` if segments are filled in order, without padding, and an unused
  -- chunk may come back empty (version-two-07, sections 4.5.2.1, 4.5.2.4 and 6.3.8).
  local function returned(result, offered, segments, is_strict)
    local parts, complete, is_full = {}, true, true
    if is_strict and #segments == 0 then
      return ""
    elseif #segments ~= #offered then
      violate(result, "returned_chunks", #segments .. " segments instead of " .. #offered)
    end
    for n, segment in ipairs(segments) do
      local region = offered[n]
      if not region or region.handle ~= segment.rdma_handle
        or walk.distance(region.offset, segment.rdma_offset) ~= 0 then
        violate(result, "returned_chunks", string.format("handle 0x%08x", segment.rdma_handle))
        complete = false
      elseif segment.rdma_length > region.length then
        violate(result, "wrong_length",
          segment.rdma_length .. " bytes in a segment of " .. region.length)
        complete = false
      else
        if is_strict and region.filled > segment.rdma_length then
          violate(result, "wrong_length",
            region.filled .. " bytes were written, and " .. segment.rdma_length .. " are returned")
        elseif is_strict and segment.rdma_length > 0 and not is_full then
          violate(result, "returned_chunks", "a segment is used before the one in front is full")
        end
        is_full = is_full and segment.rdma_length == region.length
        local bytes = Memory.content(region, segment.rdma_length)
        if not bytes then
          violate(result, "wrong_length",
            "only " .. region.filled .. " of " .. segment.rdma_length .. " bytes were written")
        end
        complete = complete and bytes ~= nil
        table.insert(parts, bytes or "")
      end
    end
    return complete and table.concat(parts) or nil
  end

  -- Finds the position in the whole stream of an item that a reply leaves out. Version 1 and the
  -- base of version 2 do not say it: the item follows the word with its length, which stays in the
  -- payload (RFC 8166, section 3.4.6). In NFS version 3 it is the last field of the results; in
  -- version 4, the results of READ and READLINK are recognized.
  local function item_end(call, payload, from, length)
    local function word(at)
      return walk.word(payload, at)
    end
    if call.program == NFS and call.rpc_version == 4 then
      for at = from, #payload - 4, 4 do
        if word(at) == length then
          local read = at >= 12 and word(at - 12) == 25 and word(at - 8) == 0 and word(at - 4) <= 1
          local readlink = at >= 8 and word(at - 8) == 27 and word(at - 4) == 0
          if read or readlink then
            return at + 4
          end
        end
      end
    end
    for at = #payload - 4 - #payload % 4, from, -4 do
      if word(at) == length then
        return at + 4
      end
    end
    return nil
  end

  local function insert_written(call, payload, items)
    local parts, taken = {}, 0
    for _, bytes in ipairs(items) do
      local at = item_end(call, payload, taken, #bytes)
      -- A chunk may hold the round-up as well.
      if not at then
        for less = 1, 3 do
          at = at or #bytes >= less and item_end(call, payload, taken, #bytes - less)
        end
      end
      if not at then
        return nil
      end
      table.insert(parts, payload:sub(taken + 1, at))
      table.insert(parts, bytes)
      table.insert(parts, ("\0"):rep(walk.round_up(#bytes)))
      taken = at
    end
    table.insert(parts, payload:sub(taken + 1))
    return table.concat(parts)
  end

  function Connection:reply(result, from, to, header)
    local chunks, message = header.chunks, header.message
    local call = end_call(result, to, header.xid, header.credit)
    if message.inline then
      check_xid(result, header.xid, header.payload)
    end
    if #chunks.rdma_reads > 0 then
      violate(result, "reply_reads", #chunks.rdma_reads .. " segments")
    end
    if not call then
      violate(result, "unmatched")
      if message.inline then
        deliver(result, header.payload, "RPC message")
      end
      return
    end
    local items, complete = {}, true
    local is_strict = header.dialect.working_group
    if #chunks.rdma_writes > 0 and #chunks.rdma_writes ~= #call.writes then
      violate(result, "returned_chunks",
        #chunks.rdma_writes .. " write chunks instead of " .. #call.writes)
    end
    for n, write in ipairs(chunks.rdma_writes) do
      local bytes = returned(result, call.writes[n] or {}, write.rdma_entry.rdma_target,
        is_strict)
      complete = complete and bytes ~= nil
      if bytes and #bytes > 0 then
        table.insert(items, bytes)
      end
    end
    local payload = header.payload
    if chunks.rdma_reply then
      local bytes = returned(result, call.reply or {}, chunks.rdma_reply.rdma_target, is_strict)
      if not message.inline then
        payload = bytes
        complete = complete and bytes ~= nil
        if bytes then
          check_xid(result, header.xid, bytes)
        end
      end
    elseif not message.inline then
      violate(result, "no_payload", "there is no reply chunk")
      complete = false
    end
    to.memory:withdraw(call.regions)
    -- Where written data belongs among placed items, nothing says.
    if header.placed and #items > 0 then
      complete = false
    end
    if complete and payload then
      local whole = insert_written(call, payload, items)
      if whole then
        local written = #items > 0 or not message.inline
        deliver(result, whole, written and "RPC message, with data that was written"
          or header.placed and "RPC message, put together" or "RPC message")
        return
      end
    end
    result.incomplete = true
  end

  -- ------------------------------------------------------------------------------------------
  -- Characteristics (xcharext-02)

  local properties = {}

  function properties.size(from, value)
    from.size = value
  end

  function properties.invalidation(from, value)
    from.invalidation = value
  end

  function properties.support(from, value)
    from.support = value
  end

  function properties.batch(from, value)
    from.batch = value
  end

  function properties.structure(from, value, result)
    local targets, at = {}, 0
    for _, group in ipairs(value.xmrbuf_groups) do
      local info = group.xmrgrp_info
      -- More segments than this are no buffer, and would only take time here.
      for _ = 1, math.min(group.xmrgrp_count, 1024) do
        if info.xmrseg_flags % (2 * C.XMRSFLAG_DDP) >= C.XMRSFLAG_DDP then
          table.insert(targets, { at = at, length = info.xmrseg_length })
        end
        at = at + info.xmrseg_length
      end
    end
    if at ~= value.xmrbuf_length then
      violate(result, "buffer_structure", at .. " bytes in a buffer of " .. value.xmrbuf_length)
      return
    end
    from.size, from.targets = value.xmrbuf_length, targets
  end

  local function announce(result, dialect, from, list)
    local seen = {}
    for _, property in ipairs(list) do
      local which = property.xchv_which
      local known = dialect.properties[which]
      if seen[which] then
        violate(result, "duplicate_property", "characteristic " .. which)
      end
      seen[which] = true
      if not known then
        violate(result, "unknown_property", "characteristic " .. which)
      elseif known.role and property.xchv_data.value ~= nil then
        properties[known.role](from, property.xchv_data.value, result)
      end
    end
  end

  local roles = {}

  function roles.initxch(self, result, from, _, header)
    if from.messages > 1 then
      violate(result, "initxch", "message " .. from.messages)
    end
    announce(result, header.dialect, from, header.info.optixch_start)
  end

  function roles.updxch(self, result, from, _, header)
    announce(result, header.dialect, from, { header.info.optupdxch_now })
  end

  function roles.report(self, result, from, to, header)
    violate(result, "error_reported", xdr.types.optx_err.names[header.info.optxe_info.optxe_which])
    local bad = header.info.optxe_lead or header.info.optxe_bad
    if bad.xmsi_dir == C.RDMA2_CALL then
      local call = end_call(result, to, bad.xmsi_xid, header.credit)
      if call then
        to.memory:withdraw(call.regions)
      end
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- Placement and continuation (rtrext-00)

  -- Finds the bytes of an item that Sends placed. Returns nil after a violation.
  local function placed(result, group, targets, item)
    local where, parts = item.xmdmi_where.xmdl_tbsn, {}
    local left = item.xmdmi_length
    for n, number in ipairs(where.xmdl_bsnum) do
      local part = #targets > 0 and group.parts[math.floor(number / #targets) + 1]
      if not part then
        violate(result, "segment_number", number .. " of " .. #targets * group.count)
        return nil
      end
      local target = targets[number % #targets + 1]
      local offset = n == 1 and where.xmdl_offset or 0
      if offset % 4 ~= 0 or offset >= target.length then
        violate(result, "segment_offset", offset .. " in a segment of " .. target.length)
        return nil
      end
      local length = math.min(left, target.length - offset)
      local bytes = part.bytes:sub(target.at + offset + 1, target.at + offset + length)
      if #bytes < length then
        violate(result, "not_placed",
          "segment " .. number .. " has " .. #bytes .. " of " .. length .. " bytes")
        return nil
      end
      table.insert(parts, bytes)
      left = left - length
    end
    if left > 0 then
      violate(result, "segment_number", left .. " bytes are in no segment")
      return nil
    end
    return table.concat(parts)
  end

  -- Offers the memory of the directions for the reply, in `optxrq_rsd`.
  local function offer_returns(call, from, sets, result)
    for _, set in ipairs(sets) do
      for _, wanted in ipairs(set.xmdrsds_items) do
        local loc = wanted.xmdrsdi_loc
        local segments = loc.xmdrsdl_ex
          or loc.xmdrsdl_bysize and loc.xmdrsdl_bysize.xmdrsdl_bsex or {}
        local regions = {}
        for _, segment in ipairs(segments) do
          table.insert(regions, offer(call, from, segment, "write", result))
        end
        table.insert(call.returns, regions)
      end
    end
  end

  local function finish_group(self, result, from, to, group)
    local lead = group.lead
    local is_call = lead.operation.direction == C.RDMA2_CALL
    local payload, items, reads = {}, {}, {}
    for _, part in ipairs(group.parts) do
      table.insert(payload, part.payload)
    end
    payload = table.concat(payload)
    check_xid(result, group.xid, payload)
    local complete = true
    for n, item in ipairs(lead.info[lead.operation.items]) do
      local which = item.xmdmi_where.xmdl_type
      local bytes
      if which == C.XMDTYPE_TBSN then
        bytes = placed(result, group, to.targets or {}, item)
        complete = complete and bytes ~= nil
      elseif which == C.XMDTYPE_EXRW and is_call then
        for _, segment in ipairs(item.xmdmi_where.xmdl_ex) do
          local region = offer(group.call, from, segment, "read", result)
          table.insert(reads, { position = item.xmdmi_disp, region = region })
        end
      elseif which == C.XMDTYPE_EXRW and group.call then
        bytes = returned(result, group.call.returns[n] or {}, item.xmdmi_where.xmdl_ex)
        complete = complete and bytes ~= nil
      end
      if bytes then
        table.insert(items, { position = item.xmdmi_disp, bytes = bytes })
      end
    end
    if is_call then
      local call = group.call
      call.payload, call.placed, call.is_inline = payload, items, true
      call.reads = read_chunks(reads)
      if complete then
        finish_call(call, result)
      end
    else
      if group.call then
        to.memory:withdraw(group.call.regions)
      end
      local whole = complete and join(payload, items)
      if complete and not whole then
        violate(result, "position", "the stream has " .. #payload .. " bytes")
      elseif whole then
        deliver(result, whole, "RPC message, put together")
      end
    end
  end

  -- Adds a transmission to a group, and finishes the group with its last one.
  local function add_part(self, result, from, to, group, header, length)
    local payload = header.payload
    if length > #payload then
      violate(result, "payload_length", length .. " of " .. #payload .. " bytes")
      from.group = nil
      return
    end
    table.insert(group.parts, { bytes = header.bytes, payload = payload:sub(1, length) })
    table.insert(group.results, result)
    if group.call and group.lead.operation.direction == C.RDMA2_CALL then
      take_credit(result, from, group.call)
    end
    if #group.parts < group.count then
      from.group = group
      return
    end
    from.group = nil
    finish_group(self, result, from, to, group)
    for _, part in ipairs(group.results) do
      part.reassembled_in = result.frame
    end
  end

  function roles.lead(self, result, from, to, header)
    local operation, info = header.operation, header.info
    if not (to.support and math.floor(to.support / operation.needs) % 2 == 1) then
      violate(result, "unsupported", operation.name)
    end
    local count = info[operation.count]
    local group = {
      xid = header.xid, lead = header, count = count, parts = {}, results = {},
      type = header.opttype,
    }
    if operation.direction == C.RDMA2_CALL then
      group.call = begin_call(result, from, header.xid)
      offer_returns(group.call, from, info[operation.returns], result)
    else
      group.call = end_call(result, to, header.xid, header.credit)
      if not group.call then
        violate(result, "unmatched")
      end
    end
    if header.direction ~= operation.direction then
      violate(result, "direction")
    end
    if count == 0 then
      violate(result, "group_count")
      return
    end
    add_part(self, result, from, to, group, header, info[operation.payload])
  end

  function roles.continuation(self, result, from, to, header)
    local group, info = header.group, header.info
    if not group then
      violate(result, "no_group")
      return
    end
    local good = true
    local function check(found, expected, rule)
      if found ~= expected then
        violate(result, rule, found .. " instead of " .. expected)
        good = false
      end
    end
    check(header.xid, group.xid, "group_xid")
    check(info.optxc_itype, group.type, "group_type")
    check(info.optxc_xnum, #group.parts, "sequence")
    if good then
      result.request_in = group.results[1].request_in
      result.is_call = group.results[1].is_call
      add_part(self, result, from, to, group, header, info.optxc_pslen)
    end
  end

  -- The messages of a batch (examples/batch).
  function roles.batch(self, result, from, to, header)
    local lengths, at, payload = header.info.optbt_lengths, 0, header.payload
    if #lengths > (to.batch or 1) then
      violate(result, "batch_count", #lengths .. " of " .. (to.batch or 1))
    end
    local sum = 0
    for _, length in ipairs(lengths) do
      sum = sum + length
    end
    if sum ~= #payload then
      violate(result, "batch_lengths", sum .. " of " .. #payload .. " bytes")
      return
    end
    for _, length in ipairs(lengths) do
      local bytes = payload:sub(at + 1, at + length)
      at = at + length
      local xid = #bytes >= 8 and walk.word(bytes, 0)
      if not xid then
        violate(result, "no_payload", #bytes .. " bytes")
      elseif header.direction == C.RDMA2_CALL then
        local call = begin_call(result, from, xid)
        take_credit(result, from, call)
        call.payload, call.is_inline = bytes, true
        finish_call(call, result)
      else
        if not end_call(result, to, xid, header.credit) then
          violate(result, "unmatched")
        end
        deliver(result, bytes, "RPC message")
      end
    end
  end

  -- An operation without a role of its own: an RPC message may follow its fields.
  function roles.extension(self, result, from, to, header)
    local payload = header.payload
    if #payload < 8 or walk.word(payload, 0) ~= header.xid then
      result.unknown = #payload > 0
      return
    end
    header.message, header.chunks = { inline = true }, { rdma_reads = {}, rdma_writes = {} }
    if header.direction == C.RDMA2_REPLY then
      self:reply(result, from, to, header)
    else
      self:call(result, from, header)
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- Messages

  local handle_working_group = load_working_group(walk, C, {
    Connection = Connection, violate = violate, begin_call = begin_call, end_call = end_call,
    join = join,
  })

  -- Says the type of opaque data, for walk.read.
  local function inside(dialect)
    return function(walker, name, data)
      local table_, number
      if name == "rdma_optinfo" then
        table_, number = dialect.operations, walker.current.rdma_opttype
      elseif name == "xchv_data" then
        table_, number = dialect.properties, walker.current.xchv_which
      elseif name == "rdma_data" and data.length > 0 then
        -- No bytes at all stand for the default.
        table_, number = dialect.properties, walker.current.rdma_which
      end
      local entry = table_ and table_[number]
      if entry then
        return entry.type, walker:within(data, entry.type)
      end
      return nil, nil
    end
  end

  -- Returns the dialect of a message, or nil if its version is not known. `before` is that of
  -- earlier messages of version 2 on the connection. There are two versions 2: both have type 4 for
  -- errors, which are taken for 2016's here, and 5, which has 28 bytes at least in 2016 and 16
  -- otherwise; the others tell them apart.
  local function dialect_of(bytes, before)
    local dialect = #bytes >= 8 and by_version[walk.word(bytes, 4)] or nil
    if dialect ~= version_two then
      return dialect
    elseif before then
      return before
    end
    local number = #bytes >= 16 and walk.word(bytes, 12) or C.RDMA2_MSG
    local is_grant = number == C.RDMA2WG_GRANT and #bytes < version_two.least
    return (is_grant or number > C.RDMA2WG_GRANT) and working_group or version_two
  end

  -- Returns the dialect of a message that may be the first of a connection, or nil if this cannot
  -- be RPC-over-RDMA.
  function messages.dialect(bytes)
    local dialect = #bytes >= 16 and dialect_of(bytes)
    return dialect and dialect.messages[walk.word(bytes, 12)] and dialect or nil
  end

  -- Reads a message, whatever came before it.
  function messages.read(bytes, dialect)
    local message = #bytes >= 16 and dialect.messages[walk.word(bytes, 12)]
    local root = message and message.root or dialect.root
    return walk.read(xdr.types, root, bytes, inside(dialect))
  end

  -- Says whether a message without a direction in its header is a reply (version 1).
  local function looks_like_reply(to, header)
    if header.message.inline then
      local is_reply = #header.payload >= 8 and walk.word(header.payload, 4) == RPC_REPLY
      return is_reply
    end
    return #header.chunks.rdma_reads == 0 and to.calls[header.xid] ~= nil
  end

  local function check_form(result, read, dialect, bytes)
    for _, note in ipairs(read.notes) do
      violate(result, note.rule, note.text, note.node)
    end
    local number = #bytes >= 16 and walk.word(bytes, 12)
    local is_unknown = dialect.working_group and number and not dialect.messages[number]
    if read.fault and not is_unknown then
      violate(result, read.fault.rule, read.fault.text)
    end
    local body = read.value[dialect.body]
    local message = body and dialect.messages[body[dialect.type]]
    if #bytes < dialect.least and not (message and message.error) then
      violate(result, "short", #bytes .. " bytes")
    elseif message and message.retired then
      violate(result, "retired", message.name)
    end
    return message
  end

  local function check_size(self, result, dialect, from, to, bytes)
    local most = to.size
    if dialect.version == 1 then
      most = self.established and (to.private_size or dialect.threshold) or nil
    elseif not most then
      most = dialect.threshold
    end
    if most and #bytes > most then
      violate(result, "too_long", #bytes .. " bytes in a buffer of " .. most)
    end
  end

  -- Checks that a connection keeps its version. It has one when both ends have sent a message of it
  -- that is no error.
  local function check_version(self, result, from, to, dialect, bytes)
    if #bytes < 16 or walk.word(bytes, 12) == C.RDMA_ERROR then
      return
    end
    from.speaks = dialect
    if dialect.version == version_two.version then
      self.two = dialect
    end
    if self.settled and self.settled ~= dialect then
      violate(result, "version_changed", "version " .. self.settled.version .. " before")
    elseif to.speaks == dialect then
      self.settled = dialect
    end
  end

  -- Handles a complete Send from end `index`. `event` has `frame`, `at` (seconds) and `invalidate`.
  function Connection:send(index, bytes, event)
    local from, to = self.ends[index], self.ends[1 - index]
    local result = new_result("message")
    result.frame, result.at, result.invalidate = event.frame, event.at, event.invalidate
    from.messages = from.messages + 1
    -- The client sends the first message.
    self.client = self.client or index
    local dialect = dialect_of(bytes, self.two)
    if not dialect then
      result.dialect = self.dialect or dialects[1]
      if #bytes < 8 then
        violate(result, "short", #bytes .. " bytes")
      else
        violate(result, "version", "version " .. walk.word(bytes, 4))
      end
      return result
    end
    result.dialect, self.dialect = dialect, dialect
    local read = messages.read(bytes, dialect)
    local message = check_form(result, read, dialect, bytes)
    check_version(self, result, from, to, dialect, bytes)
    if dialect.working_group then
      if #bytes >= dialect.least then
        handle_working_group(self, result, from, to, bytes, read)
      end
      return result
    end
    check_size(self, result, dialect, from, to, bytes)
    if result.invalidate and dialect.version > 1 and to.invalidation ~= true then
      violate(result, "no_invalidation")
    end
    local value = read.value
    local group = from.group
    from.group = nil
    local refused = read.fault or not message or message.retired or #bytes < dialect.least
      and not message.error
    if refused then
      return result
    end
    local header = {
      dialect = dialect, message = message, xid = value.rdma_xid, credit = value.rdma_credit,
      bytes = bytes, payload = bytes:sub(read.length + 1), group = group,
    }
    result.name, result.xid = message.name, header.xid
    local body = value.rdma_body
    if message.error then
      local code = body.rdma_error.rdma_err
      violate(result, "error_reported", "code " .. code)
      local call = end_call(result, to, header.xid, header.credit, true)
      if call then
        to.memory:withdraw(call.regions)
      end
    elseif message.optional then
      self:optional(result, from, to, header, body.rdma_optional)
    else
      header.chunks = body[message.chunks]
      local direction = header.chunks.rdma_direction
      if direction == nil then
        direction = looks_like_reply(to, header) and C.RDMA2_REPLY or C.RDMA2_CALL
      end
      local is_reply = direction == C.RDMA2_REPLY
      if message.inline and #header.payload >= 8
        and (walk.word(header.payload, 4) == RPC_REPLY) ~= is_reply then
        violate(result, "direction", "the RPC message has the other")
      end
      if header.credit == 0 then
        violate(result, "zero_credits")
      end
      if is_reply then
        self:reply(result, from, to, header)
      else
        self:call(result, from, header)
      end
    end
    local continues = message.optional and body.rdma_optional.rdma_opttype == C.ROPT_XMTCONT
    if group and not continues then
      violate(result, "interrupted", string.format("XID 0x%08x", group.xid))
    end
    if result.invalidate and not result.invalidate_checked then
      violate(result, "invalidated", "the message answers no call")
    end
    return result
  end

  function Connection:optional(result, from, to, header, optional)
    local operation = header.dialect.operations[optional.rdma_opttype]
    if not operation then
      violate(result, "unknown_operation", "operation " .. optional.rdma_opttype)
      result.name = "operation " .. optional.rdma_opttype .. ", which is not known here"
      result.unknown = true
      return
    end
    result.name = operation.name
    header.operation, header.opttype = operation, optional.rdma_opttype
    header.direction = optional.rdma_optdir
    header.info = optional.rdma_optinfo.value
    -- An operation grants credits, or asks for them, as its direction says (version-two-01, section
    -- 4.2.2).
    if header.info and header.direction == C.RDMA2_REPLY then
      to.granted = math.max(1, header.credit)
    end
    if header.info and operation.role then
      roles[operation.role](self, result, from, to, header)
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- RDMA Write and RDMA Read

  -- Handles data that end `index` writes into the other's memory.
  function Connection:write(index, handle, offset, bytes, event)
    local to = self.ends[1 - index]
    local result = new_result("RDMA Write")
    result.frame, result.at = event.frame, event.at
    if #bytes == 0 then
      return result
    end
    local region, at, text = to.memory:find(handle, offset, #bytes, "write")
    if not region then
      violate(result, at, text)
      return result
    end
    Memory.store(region, at, bytes)
    result.call_in, result.xid = region.call.result.frame, region.call.xid
    return result
  end

  -- Handles a request of end `index` to read the other's memory. `sink` says where the data is to
  -- go: `handle` and `offset`, or the `number` of the packet that will bring it.
  function Connection:read_request(index, handle, offset, length, sink, event)
    local from, to = self.ends[index], self.ends[1 - index]
    local result = new_result("RDMA Read Request")
    result.frame, result.at = event.frame, event.at
    local region, at, text = to.memory:find(handle, offset, length, "read")
    if not region then
      violate(result, at, text)
    else
      result.call_in, result.xid = region.call.result.frame, region.call.xid
    end
    from.memory:reading(sink, region, region and at, length)
    return result
  end

  -- Handles data that end `index` sends for a read of the other. `matches` is that of
  -- memory.lua.
  function Connection:read_response(index, matches, bytes, event)
    local to = self.ends[1 - index]
    local result = new_result("RDMA Read Response")
    result.frame, result.at = event.frame, event.at
    local read = to.memory:response(matches, bytes)
    if not read then
      violate(result, "unrequested")
    elseif read.region then
      local call = read.region.call
      result.call_in, result.xid = call.result.frame, call.xid
      finish_call(call, result)
    end
    return result
  end

  return messages
end
