-- Messages of the working group's version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07): flow control
-- by a count of messages, properties, messages in several parts, and the rules for chunks. And
-- those of its placement extension (ext-wg-ddp), called "placement" here.
--
-- `shared` has what messages.lua does for all versions. Nothing here depends on Wireshark.

return function(walk, C, shared)
  local violate = shared.violate

  local WRAP, HALF = 4294967296, 2147483648
  -- Defaults of properties (section 5.2, table 1).
  local SEGMENT_SIZE, SEGMENT_COUNT = 1048576, 16
  -- The longest first message of a client, as the server may know version 1 only (section 4.3).
  local FIRST_MESSAGE = 1024

  -- ------------------------------------------------------------------------------------------
  -- Flow control (section 4.2.1)

  -- Takes the credit field of a message from `from`: the count of messages up to which `to` may
  -- send. It is the sum of the messages that `from` has received and of those that it can take.
  -- The field wraps; the counts here do not, because a capture begins with the connection.
  local function take_credit(result, from, to, credit)
    local ahead = (credit - to.messages) % WRAP
    if ahead >= HALF then
      ahead = ahead - WRAP
    end
    -- Messages of `to` may be on their way, so that a valid field can be behind their count.
    if ahead >= HALF - 1 or to.messages + ahead < 0 then
      violate(result, "credit_range", credit .. ", and the peer has sent " .. to.messages)
      return
    end
    to.limit = math.max(to.limit or 1, to.messages + ahead)
    result.flow = {
      sent = from.messages, peer_sent = to.messages, peer_may_send = math.max(0, ahead),
    }
  end

  -- Each end may send one message before it is told more, and one grant beyond its limit: the
  -- receiver keeps a receive for that (sections 4.2.1.1 and 4.3).
  local function check_limit(result, from, is_grant)
    local limit = from.limit or 1
    if from.messages > limit + (is_grant and 1 or 0) then
      violate(result, "limit_exceeded", "message " .. from.messages .. ", the limit is " .. limit)
    end
  end

  local function check_size(conn, result, from, to, message, bytes)
    local threshold = result.dialect.threshold
    local most = message.properties and threshold or to.size or threshold
    if #bytes > most then
      violate(result, "too_long", #bytes .. " bytes, where " .. most .. " are allowed")
    end
    if from == conn.ends[conn.client] and from.messages == 1 and #bytes > FIRST_MESSAGE then
      violate(result, "first_too_long", #bytes .. " bytes")
    end
    local own = not message.properties and from.send_size or threshold
    if #bytes > own then
      violate(result, "send_size", #bytes .. " of " .. own .. " bytes")
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- Properties (section 5)

  local function is_valid(known, property)
    local data = property.rdma_data
    if data.length == 0 then
      -- The default (section 5.1).
      return true
    elseif data.value == nil or not known.variable and data.length ~= 4 then
      return false
    end
    return not known.values or known.values[data.value] ~= nil
  end

  local handlers = {}

  -- The length of a receive buffer with these segments (placement).
  local function structure_length(structure)
    local length = 0
    for _, segments in ipairs(structure) do
      -- A number with a fraction, which does not wrap.
      length = length + 1.0 * segments.rdma_count * segments.rdma_length
    end
    return length
  end

  function handlers.properties(_, result, from, _, header)
    local list, good = header.arm.rdma_props, true
    from.asked[header.xid] = true
    if from.properties_done then
      violate(result, "properties_again")
    end
    for _, property in ipairs(list) do
      local which = property.rdma_which
      local known = header.dialect.properties[which]
      if not known then
        violate(result, "unknown_property", "property " .. which)
      elseif not is_valid(known, property) then
        violate(result, "property_value", known.name)
        good = false
      end
    end
    -- Nothing of a message with a bad value counts (section 7.2.2).
    for _, property in ipairs(good and list or {}) do
      local known = header.dialect.properties[property.rdma_which]
      if known and known.role then
        -- No value at all stands for the default.
        from[known.role] = property.rdma_data.value
      end
    end
    if from.structure and not header.message.more and not from.properties_done then
      local sum, size = structure_length(from.structure), from.size or header.dialect.threshold
      if sum ~= size then
        violate(result, "buffer_structure",
          string.format("%.0f bytes in a buffer of %d", sum, size))
        from.structure = nil
      end
    end
    from.properties_begun = header.message.more
    from.properties_done = from.properties_done or not header.message.more
  end

  -- ------------------------------------------------------------------------------------------
  -- Messages in several parts (sections 6.3.6, 6.3.9 and 7.1.4)

  -- Checks that a message may stand here. Only a grant or an error may stand between the parts of a
  -- message or of the properties: see drafts/errata-07.md about the text, which has neither.
  local function is_in_place(result, from, header)
    local message, parts = header.message, from.parts
    if message.grant or message.error then
      return true
    end
    if from.properties_begun and not message.properties then
      violate(result, "properties_interrupted", message.name)
      return false
    end
    local continues = parts and (message.part and not parts.sends or message.placed and parts.sends)
      and parts.direction == message.direction and parts.xid == header.xid
    if not parts or continues then
      return true
    elseif parts.refused then
      -- The sender has given up the message.
      from.parts = nil
      return true
    end
    violate(result, "part_interrupted", string.format("XID 0x%08x", parts.xid))
    return false
  end

  -- Takes a part of a message, or the only one. Returns the whole payload if it is complete, and
  -- the results of all parts.
  local function collect(result, from, header)
    local parts, payload, left = from.parts, header.payload, header.arm.rdma_remaining
    local is_last = not header.message.more
    if not parts then
      if is_last then
        return payload, {}
      end
      parts = { direction = header.message.direction, xid = header.xid, bytes = {}, results = {} }
      parts.remaining = #payload + left
      from.parts = parts
    end
    table.insert(parts.results, result)
    if is_last then
      from.parts = nil
    end
    if parts.refused then
      return nil
    end
    -- The last part has a word of payload at least, so that something remains before it.
    local rest = is_last and 0 or left
    if parts.remaining ~= #payload + rest or not is_last and rest == 0 then
      violate(result, "remaining",
        #payload .. " bytes and " .. rest .. " to come, of " .. parts.remaining)
      parts.refused = true
      return nil
    end
    table.insert(parts.bytes, payload)
    parts.remaining = rest
    if not is_last then
      return nil, parts.results
    end
    return table.concat(parts.bytes), parts.results
  end

  -- ------------------------------------------------------------------------------------------
  -- Calls

  -- Visits the segments of a call's chunks, in the order of the header.
  local function each_segment(chunks, visit)
    for _, read in ipairs(chunks.rdma_reads) do
      visit(read.rdma_entry.rdma_target)
    end
    for _, write in ipairs(chunks.rdma_writes) do
      for _, segment in ipairs(write.rdma_entry.rdma_target) do
        visit(segment)
      end
    end
    for _, segment in ipairs(chunks.rdma_reply and chunks.rdma_reply.rdma_target or {}) do
      visit(segment)
    end
  end

  -- Checks what makes a header one that receivers answer with RDMA2_ERR_BAD_XDR. Returns whether
  -- they take it.
  local function check_call_header(result, arm, chunks, is_external)
    local before = #result.violations
    local body, last = 0, 0
    for _, read in ipairs(is_external and arm.rdma_call or {}) do
      local entry = read.rdma_entry
      body = body + entry.rdma_target.rdma_length
      if entry.rdma_position ~= 0 then
        violate(result, "position_zero", entry.rdma_position .. " in the call chunk")
      end
    end
    if is_external and #arm.rdma_call == 0 then
      violate(result, "body_chunk", "there is no call chunk")
    end
    for _, read in ipairs(arm.rdma_reads) do
      local position = read.rdma_entry.rdma_position
      if position == 0 then
        violate(result, "position_zero", "0 in the read list")
      elseif position < last then
        violate(result, "read_order", position .. " after " .. last)
      end
      last = math.max(last, position)
    end
    local named = arm.rdma_inv_handle == 0
    each_segment(chunks, function(segment)
      named = named or segment.rdma_handle == arm.rdma_inv_handle
    end)
    if not named then
      violate(result, "inv_handle", string.format("handle 0x%08x", arm.rdma_inv_handle))
    end
    local is_good = #result.violations == before
    if is_good and body % 4 ~= 0 then
      violate(result, "wrong_length", body .. " bytes in the call chunk are no XDR")
    end
    return is_good
  end

  -- Checks a call by what its receiver has announced.
  local function check_announced(conn, result, to, header, chunks)
    local count, most = 0, to.segment_size or SEGMENT_SIZE
    each_segment(chunks, function(segment)
      count = count + 1
      if segment.rdma_length > most then
        violate(result, "segment_size", segment.rdma_length .. " of " .. most .. " bytes")
      end
    end)
    if count > (to.segment_count or SEGMENT_COUNT) then
      violate(result, "segment_count", count .. " of " .. (to.segment_count or SEGMENT_COUNT))
    end
    if to ~= conn.ends[conn.client] then
      return
    end
    -- A call in reverse direction (section 5.2.5).
    local level, message = to.reverse or C.RDMA2WG_RVRSDIR_NONE, header.message
    local items = #chunks.rdma_reads + #chunks.rdma_writes
    if level == C.RDMA2WG_RVRSDIR_NONE then
      violate(result, "reverse", "none are taken")
    elseif level < C.RDMA2WG_RVRSDIR_GENL and (items > 0 or message.placed) then
      violate(result, "reverse", "no items outside of the payload are taken")
    elseif level < C.RDMA2WG_RVRSDIR_CONT and message.more then
      violate(result, "reverse", "no calls in several parts are taken")
    end
  end

  local EMPTY = { rdma_reads = {}, rdma_writes = {} }

  local function check_direction(result, payload, is_reply)
    if #payload >= 8 and (walk.word(payload, 4) == 1) ~= is_reply then
      violate(result, "direction", "the RPC message has the other")
    end
  end

  function handlers.call(conn, result, from, to, header)
    local arm, message = header.arm, header.message
    local is_external = not message.part
    local chunks = EMPTY
    if not message.more then
      chunks = {
        rdma_reads = {}, rdma_writes = arm.rdma_provisional_writes,
        rdma_reply = arm.rdma_provisional_reply,
      }
      for _, list in ipairs({ is_external and arm.rdma_call or {}, arm.rdma_reads }) do
        for _, read in ipairs(list) do
          table.insert(chunks.rdma_reads, read)
        end
      end
      if not check_call_header(result, arm, chunks, is_external) then
        from.asked[header.xid], from.parts = true, nil
        return
      end
    end
    local continued = from.parts
    if not (continued and continued.refused) then
      check_announced(conn, result, to, header, chunks)
    end
    local payload = header.payload
    if message.part then
      payload = collect(result, from, header)
      local call = continued and continued.call
      if not continued and from.parts then
        call = shared.begin_call(result, from, header.xid)
        from.parts.call, call.parts = call, from.parts.results
      end
      header.call, result.is_call = call, true
      if not payload then
        return
      end
      check_direction(result, payload, false)
    end
    header.payload, header.chunks = payload, chunks
    header.inv_handle = arm.rdma_inv_handle
    shared.Connection.call(conn, result, from, header)
  end

  -- ------------------------------------------------------------------------------------------
  -- Replies

  function handlers.reply(conn, result, from, to, header)
    local arm, message = header.arm, header.message
    if not message.part and not arm.rdma_reply then
      violate(result, "body_chunk", "there is no reply chunk")
      return
    end
    local length = 0
    for _, segment in ipairs(arm.rdma_reply and arm.rdma_reply.rdma_target or {}) do
      length = length + segment.rdma_length
    end
    if length % 4 ~= 0 then
      violate(result, "wrong_length", length .. " bytes in the reply chunk are no XDR")
    end
    if message.part then
      local payload, results = collect(result, from, header)
      local call = to.calls[header.xid]
      result.request_in = call and call.result.frame
      if not payload then
        return
      end
      check_direction(result, payload, true)
      header.payload = payload
      for _, part in ipairs(results) do
        part.reassembled_in = result.frame
      end
    end
    header.chunks = {
      rdma_reads = {}, rdma_writes = arm.rdma_writes, rdma_reply = arm.rdma_reply,
    }
    shared.Connection.reply(conn, result, from, to, header)
  end

  -- ------------------------------------------------------------------------------------------
  -- Placement

  -- Returns the segments for data of an end's receives that end within `most` bytes, in their
  -- order, which is that of their numbers.
  local function targets(structure, most)
    local list, at = {}, 0
    for _, segments in ipairs(structure or {}) do
      -- More segments than this are no buffer, and would only take time here.
      for _ = 1, math.min(segments.rdma_count, 1024) do
        local length = segments.rdma_length
        if at + length > most then
          return list
        elseif segments.rdma_flags % (2 * C.RDMA2_RBUF_TARGET) >= C.RDMA2_RBUF_TARGET then
          local align = math.max(segments.rdma_align, 4)
          table.insert(list, { at = at, length = length, align = align })
        end
        at = at + length
      end
    end
    return list
  end

  -- Takes a part of a message with placed items, or the only one. Returns all parts if the message
  -- is complete.
  local function collect_placed(result, from, header)
    local arm, more, parts = header.arm, header.message.more, from.parts
    local left, rest = more and arm.rdma_messages or 0, more and arm.rdma_remaining or 0
    local length = arm.rdma_payload_length
    local is_first = not parts
    if is_first then
      parts = { direction = header.message.direction, xid = header.xid, results = {}, sends = {} }
      from.parts = more and parts or nil
      -- The receives of all parts may be held until the last one arrives.
      local credits = (from.limit or 1) - from.messages
      if left > credits then
        violate(result, "placed_credits", left .. " messages to come, " .. credits .. " credits")
      end
    elseif not more then
      from.parts = nil
    end
    table.insert(parts.results, result)
    if parts.refused then
      return nil
    end
    local before = #result.violations
    if more and left == 0 then
      violate(result, "placed_count", "none, in one that is not the last")
    elseif not is_first and left ~= parts.left - 1 then
      violate(result, "placed_count", left .. " to come, after " .. parts.left)
    end
    if not is_first and length + rest ~= parts.remaining then
      violate(result, "remaining",
        length .. " bytes and " .. rest .. " to come, of " .. parts.remaining)
    end
    if length > #header.payload or length % 4 ~= 0 then
      violate(result, "payload_length", length .. " of " .. #header.payload .. " bytes")
    end
    if #result.violations > before then
      parts.refused = true
      return nil
    end
    parts.left, parts.remaining = left, rest
    local first = #header.bytes - #header.payload
    table.insert(parts.sends, {
      bytes = header.bytes, payload = header.payload:sub(1, length),
      used = { { from = 0, to = first + length } },
    })
    return not more and parts or nil
  end

  -- Returns the bytes of a placed item, or nil after a violation. Notes in each part what of it is
  -- used.
  local function placed_item(result, sends, list, item)
    local bytes, number, offset = {}, item.rdma_segment, item.rdma_offset
    local left = item.rdma_length
    while left > 0 do
      local send = #list > 0 and sends[math.floor(number / #list) + 1]
      if not send then
        violate(result, "segment_number", number .. " of " .. #list * #sends)
        return nil
      end
      local target = list[number % #list + 1]
      if offset % target.align ~= 0 or offset >= target.length then
        violate(result, "segment_offset", offset .. " in a segment of " .. target.length)
        return nil
      end
      local at, length = target.at + offset, math.min(left, target.length - offset)
      local part = send.bytes:sub(at + 1, at + length)
      if #part < length then
        violate(result, "not_placed",
          "segment " .. number .. " has " .. #part .. " of " .. length .. " bytes")
        return nil
      end
      table.insert(send.used, { from = at, to = at + length })
      table.insert(bytes, part)
      left, number, offset = left - length, number + 1, 0
    end
    return table.concat(bytes)
  end

  -- Checks that nothing in a part is used twice, and what is used by nothing. Returns whether the
  -- receiver takes it.
  local function check_used(result, send)
    table.sort(send.used, function(a, b) return a.from < b.from end)
    local last = 0
    for _, used in ipairs(send.used) do
      if used.from < last then
        violate(result, "placed_overlap", "byte " .. used.from .. " of a message")
        return false
      elseif send.bytes:sub(last + 1, used.from):find("[^\0]") then
        violate(result, "placed_padding", "before byte " .. used.from .. " of a message")
      end
      last = used.to
    end
    if last < #send.bytes then
      violate(result, "placed_padding", #send.bytes - last .. " bytes at the end of a message")
    end
    return true
  end

  -- The words that an RPC message begins with, before which no item is: XID and direction.
  local RPC_START = 8

  -- Checks the positions of placed items, which count in the whole stream.
  local function check_positions(result, items, payload, has_reads)
    local last, reduced = RPC_START, 0
    for _, item in ipairs(items) do
      local position, length = item.rdma_position, item.rdma_length
      -- Items that are read count as well; these positions are checked when all is there.
      local is_beyond = not has_reads and position > #payload + reduced
      if length == 0 or position % 4 ~= 0 or position < last or is_beyond then
        violate(result, "placed_position", length .. " bytes at " .. position)
        return false
      end
      length = length + walk.round_up(length)
      last, reduced = position + length, reduced + length
    end
    return true
  end

  -- Returns the payload of a complete message and its placed items, or nil after a violation.
  local function take_placed(result, from, to, header, sends)
    local arm, threshold = header.arm, header.dialect.threshold
    local payload, items = {}, {}
    for _, send in ipairs(sends) do
      table.insert(payload, send.payload)
    end
    payload = table.concat(payload)
    if not check_positions(result, arm.rdma_placed, payload, #(arm.rdma_reads or {}) > 0) then
      return nil
    end
    local most = math.min(from.send_size or threshold, to.size or threshold)
    local list = targets(to.structure, most)
    for _, item in ipairs(arm.rdma_placed) do
      local bytes = placed_item(result, sends, list, item)
      if not bytes then
        return nil
      end
      table.insert(items, { position = item.rdma_position, bytes = bytes })
    end
    for _, send in ipairs(sends) do
      if not check_used(result, send) then
        return nil
      end
    end
    return payload, items
  end

  -- Says whether an end has announced that it takes messages with placed items.
  local function takes_placed(to, direction)
    if direction == C.RDMA2_CALL then
      return (to.placement or 0) % (2 * C.RDMA2_PLACE_CALLS) >= C.RDMA2_PLACE_CALLS
    end
    return (to.smallest_result or C.RDMA2_RESMIN_NONE) ~= C.RDMA2_RESMIN_NONE
  end

  function handlers.placed(conn, result, from, to, header)
    local arm, message = header.arm, header.message
    local is_call, chunks = message.direction == C.RDMA2_CALL, EMPTY
    if not takes_placed(to, message.direction) then
      violate(result, "unsupported", message.name)
    end
    if not message.more then
      chunks = {
        rdma_reads = arm.rdma_reads or {},
        rdma_writes = arm.rdma_provisional_writes or arm.rdma_writes,
        rdma_reply = arm.rdma_provisional_reply,
      }
      if is_call and not check_call_header(result, arm, chunks, false) then
        from.asked[header.xid], from.parts = true, nil
        return
      end
    end
    local continued = from.parts
    if is_call and not (continued and continued.refused) then
      check_announced(conn, result, to, header, chunks)
    end
    local parts = collect_placed(result, from, header)
    local call = continued and continued.call
    if is_call and not continued and from.parts then
      call = shared.begin_call(result, from, header.xid)
      from.parts.call, call.parts = call, from.parts.results
    elseif not is_call then
      local answered = to.calls[header.xid]
      result.request_in = answered and answered.result.frame
    end
    header.call, result.is_call = call, is_call
    local payload, items
    if parts then
      payload, items = take_placed(result, from, to, header, parts.sends)
    end
    if not payload then
      -- The responder may answer what it refuses.
      from.asked[header.xid] = true
      return
    end
    check_direction(result, payload, not is_call)
    header.payload, header.chunks, header.placed = payload, chunks, items
    if is_call then
      header.inv_handle = arm.rdma_inv_handle
      shared.Connection.call(conn, result, from, header)
      return
    end
    for _, part in ipairs(parts.results) do
      part.reassembled_in = result.frame
    end
    -- The positions have been checked, so that this is no nil.
    header.payload = shared.join(payload, items)
    shared.Connection.reply(conn, result, from, to, header)
  end

  -- ------------------------------------------------------------------------------------------
  -- Extensions without a handler of their own

  -- An RPC message may follow the fields. It begins with the XID of the header.
  function handlers.extension(conn, result, from, to, header)
    local payload = header.payload
    from.asked[header.xid] = true
    if #payload < 8 or walk.word(payload, 0) ~= header.xid then
      result.unknown = #payload > 0
      return
    end
    header.chunks, header.inv_handle = EMPTY, 0
    if walk.word(payload, 4) == C.RDMA2_REPLY then
      shared.Connection.reply(conn, result, from, to, header)
    else
      shared.Connection.call(conn, result, from, header)
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- Errors (section 7)

  local function chunk_length(regions)
    local length = 0
    for _, region in ipairs(regions or {}) do
      length = length + region.length
    end
    return length
  end

  -- Says whether an error asks for something that its call has.
  local function is_contradiction(arm, call)
    local code = arm.rdma_err
    if code == C.RDMA2WG_ERR_WRITE_RESOURCE then
      local index, needed = arm.rdma_writeres.rdma_chunk_index, arm.rdma_writeres.rdma_length_needed
      if index == 0 then
        return needed ~= 0
      end
      return not call.writes[index] or needed ~= 0 and needed <= chunk_length(call.writes[index])
    elseif code == C.RDMA2WG_ERR_REPLY_RESOURCE then
      local needed = arm.rdma_length_needed
      return needed ~= 0 and needed <= chunk_length(call.reply)
    elseif code == C.RDMA2WG_ERR_READ_CHUNKS then
      return #call.reads <= arm.rdma_max_read_chunks
    elseif code == C.RDMA2WG_ERR_WRITE_CHUNKS then
      return #call.writes <= arm.rdma_max_write_chunks
    elseif code == C.RDMA2WG_ERR_SEGMENTS then
      return #call.regions <= arm.rdma_max_segments
    end
    return false
  end

  function handlers.error(_, result, _, to, header)
    local arm = header.arm
    local name = header.dialect.errors[arm.rdma_err]
    violate(result, "error_reported", name or "code " .. arm.rdma_err)
    local call = to.calls[header.xid]
    if not call and not to.asked[header.xid] then
      violate(result, "unmatched")
      return
    end
    -- An error with a code that is not known is discarded.
    if not call or not name then
      return
    end
    if is_contradiction(arm, call) then
      violate(result, "contradiction", name)
    end
    if to.parts and to.parts.call == call then
      to.parts.refused = true
    end
    shared.end_call(result, to, header.xid, header.credit, true)
    to.memory:withdraw(call.regions)
  end

  function handlers.grant(_, result, _, _, header)
    if header.xid ~= 0 then
      violate(result, "grant_xid", string.format("0x%08x", header.xid))
    end
  end

  -- ------------------------------------------------------------------------------------------
  -- All messages

  -- Handles a message whose fixed fields are there. `read` is what walk.lua read.
  return function(conn, result, from, to, bytes, read)
    local dialect, value = result.dialect, read.value
    local xid, credit, number = value.rdma_xid, value.rdma_credit, walk.word(bytes, 12)
    local message = dialect.messages[number]
    from.asked = from.asked or {}
    to.asked = to.asked or {}
    result.xid = xid
    check_limit(result, from, message and message.grant)
    local body = not read.fault and value.rdma_hdr
    local arm = body and body[message.arm] or {}
    -- A server of version 1 answers with a credit of that version.
    if not (message and message.error and arm.rdma_err == C.RDMA2WG_ERR_VERS) then
      take_credit(result, from, to, credit)
    end
    if not message then
      violate(result, "header_type", "type " .. number)
      result.name = string.format("header type 0x%08x, which is not known here", number)
      result.unknown = true
      from.asked[xid] = true
      return
    end
    result.name = message.name
    check_size(conn, result, from, to, message, bytes)
    -- The header ends with the first word of the payload.
    local header = {
      dialect = dialect, message = message, xid = xid, credit = credit, arm = arm, bytes = bytes,
      payload = bytes:sub(read.length + (message.part and -3 or 1)),
    }
    if not message.inline and not message.error and read.length < #bytes then
      local rule = message.direction and "two_payloads" or "form"
      violate(result, rule, #bytes - read.length .. " bytes follow the header")
      read.fault = read.fault or not message.direction
    end
    if result.invalidate and not message.extension
      and (message.direction ~= C.RDMA2_REPLY or message.more) then
      result.invalidate_checked = true
      violate(result, "invalidated", message.name .. " must not invalidate")
    end
    if read.fault then
      from.asked[xid] = true
      return
    end
    if not is_in_place(result, from, header) then
      from.asked[xid] = true
      return
    end
    handlers[message.handler](conn, result, from, to, header)
  end
end
