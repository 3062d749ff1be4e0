-- RPC-over-RDMA on iWARP: DDP segments (RFC 5041, 5040) become events of messages.lua.
--
-- Wireshark splits TCP's stream into segments, and this file takes each from where Wireshark shows
-- its first byte. It does not rely on what Wireshark gives to heuristic dissectors: version 4.0
-- loses the first segment of a Send that begins in a frame in which another ends, and gives only
-- one of several Sends in a frame.

return function(messages, show, walk, state)
  -- RDMAP opcodes (RFC 5040, section 4.3).
  local WRITE, READ_REQUEST, READ_RESPONSE = 0, 1, 2
  local SENDS = { [3] = true, [4] = true, [5] = true, [6] = true }
  local INVALIDATES = { [4] = true, [6] = true }
  -- Bytes of the headers of untagged and tagged segments (RFC 5041, section 4).
  local UNTAGGED, TAGGED = 18, 14
  -- Bytes of an RDMA Read Request (RFC 5040, section 4.4).
  local READ_REQUEST_LENGTH = 28
  -- The start of the private data of RFC 8797, section 4, with its version; then flags and the
  -- sizes of what is sent and received.
  local PRIVATE_DATA = "\246\171\014\024\001.(.)(.)"

  local fields = {
    -- Wireshark's field for the first bit of a segment.
    first = Field.new("iwarp_ddp.tagged_flag"),
    length = Field.new("iwarp_mpa.ulpdulength"),
    private = Field.new("iwarp_mpa.privatedata"),
    request = Field.new("iwarp_mpa.key.req"),
    reply = Field.new("iwarp_mpa.key.rep"),
    stream = Field.new("tcp.stream"),
  }

  local word = walk.word

  local function wide(bytes, at)
    return { high = word(bytes, at), low = word(bytes, at + 4) }
  end

  -- Returns the connection of a packet, and which end sent it. Wireshark numbers TCP's connections:
  -- a later one can have the same addresses and ports.
  local function connection(pinfo)
    local one = tostring(pinfo.src) .. " " .. pinfo.src_port
    local two = tostring(pinfo.dst) .. " " .. pinfo.dst_port
    local index = one < two and 0 or 1
    local key = fields.stream().value
    local found = state.connections[key]
    if not found then
      found = messages.connection()
      found.parts = {}
      state.connections[key] = found
    end
    return found, index
  end

  -- Returns the numbers and positions of the segments of this frame so far.
  local function segments()
    local list, lengths = {}, { fields.length() }
    for n, first in ipairs({ fields.first() }) do
      list[n] = { source = first.source, at = first.offset, length = lengths[n].value }
    end
    return list
  end

  local handlers = {}

  local function send(conn, index, bytes, event, opcode, is_last)
    local parts = conn.parts[index]
    local payload = bytes:sub(UNTAGGED + 1)
    if not is_last then
      conn.parts[index] = parts or {}
      table.insert(conn.parts[index], payload)
      return nil
    end
    conn.parts[index] = nil
    local whole = payload
    if parts then
      table.insert(parts, payload)
      whole = table.concat(parts)
    end
    if not conn.dialect and not messages.dialect(whole) then
      return nil
    end
    event.invalidate = INVALIDATES[opcode] and word(bytes, 2) or nil
    local result = conn:send(index, whole, event)
    return { conn = conn, result = result, whole = parts and whole, header = UNTAGGED }
  end

  handlers[WRITE] = function(conn, index, bytes, event)
    return conn:write(index, word(bytes, 2), wide(bytes, 6), bytes:sub(TAGGED + 1), event), TAGGED
  end

  handlers[READ_REQUEST] = function(conn, index, bytes, event)
    if #bytes < UNTAGGED + READ_REQUEST_LENGTH then
      return nil
    end
    local at = UNTAGGED
    local sink = { handle = word(bytes, at), offset = wide(bytes, at + 4) }
    local length, source = word(bytes, at + 12), word(bytes, at + 16)
    return conn:read_request(index, source, wide(bytes, at + 20), length, sink, event), #bytes
  end

  handlers[READ_RESPONSE] = function(conn, index, bytes, event)
    local handle, offset = word(bytes, 2), wide(bytes, 6)
    local function matches(read)
      return read.handle == handle and walk.distance(read.offset, offset) or nil
    end
    return conn:read_response(index, matches, bytes:sub(TAGGED + 1), event), TAGGED
  end

  -- Handles one segment, once and in the order of the wire. Returns an entry for show.lua, or nil
  -- if it is not RPC-over-RDMA or only a part of a Send.
  local function handle(segment, pinfo)
    local bytes = segment.source(segment.at, segment.length):raw()
    if #bytes < 2 then
      return nil
    end
    local control, opcode = bytes:byte(1), bytes:byte(2) % 16
    local is_tagged, is_last = control >= 128, math.floor(control / 64) % 2 == 1
    if #bytes < (is_tagged and TAGGED or UNTAGGED) then
      return nil
    end
    local conn, index = connection(pinfo)
    local event = { frame = pinfo.number, at = pinfo.rel_ts }
    if SENDS[opcode] then
      return send(conn, index, bytes, event, opcode, is_last)
    elseif handlers[opcode] and conn.dialect then
      local access, header = handlers[opcode](conn, index, bytes, event)
      return access and { conn = conn, access = access, header = header }
    end
    return nil
  end

  -- Handles and shows the segments of a frame up to number `last`. Returns whether that one is
  -- RPC-over-RDMA.
  local function advance(list, last, pinfo, tree)
    if state.frame ~= pinfo.number then
      state.frame, state.shown = pinfo.number, 0
    end
    local is_ours = false
    for n = state.shown + 1, last do
      local key = pinfo.number .. " " .. n
      local entry = state.entries[key]
      if entry == nil then
        entry = handle(list[n], pinfo) or false
        state.entries[key] = entry
      end
      if entry then
        local rest = list[n].length - entry.header
        local tvb = rest > 0 and list[n].source(list[n].at + entry.header, rest):tvb() or nil
        show.entry(entry, tvb, pinfo, tree)
      end
      is_ours = entry and true or false
    end
    state.shown = math.max(state.shown, last)
    return is_ours
  end

  local iwarp = {}

  -- The heuristic dissector, which is called for most segments.
  function iwarp.dissect(_, pinfo, tree)
    -- tshark -2 without a filter makes no fields on its first pass; then the second is the first.
    local list = segments()
    return #list > 0 and advance(list, #list, pinfo, tree)
  end

  -- Handles what the heuristic dissector was not called for, at the end of each frame.
  function iwarp.finish(pinfo, tree)
    local list = segments()
    if #list > 0 then
      advance(list, #list, pinfo, tree)
    end
    -- The same frame may be dissected again.
    state.frame = nil
  end

  -- Takes the private data of connection set-up: the sizes of receive buffers (RFC 8797).
  function iwarp.setup(pinfo)
    if not (fields.request() or fields.reply()) then
      return
    end
    local conn, index = connection(pinfo)
    conn.established = true
    if fields.request() then
      conn.client = index
    end
    local private = fields.private()
    local _, size = (private and private.range:raw() or ""):match(PRIVATE_DATA)
    if size then
      conn.ends[index].private_size = (size:byte() + 1) * 1024
    end
  end

  return iwarp
end
