-- RPC-over-RDMA on iWARP: what stock Wireshark decodes of MPA, DDP and RDMAP (RFC 5040, 5041, 5044)
-- becomes events of messages.lua.

return function(messages, show, dialects, state)
  -- RDMAP opcodes (RFC 5040, section 4.3).
  local WRITE, READ_REQUEST, READ_RESPONSE = 0, 1, 2
  local SENDS = { [3] = true, [4] = true, [5] = true, [6] = true }
  local INVALIDATES = { [4] = true, [6] = true }
  -- The start of the private data of RFC 8797, section 4, and its version.
  local PRIVATE_DATA = "^.*\246\171\014\024\001(.)(.)(.)"

  local fields = {}
  for name, abbreviation in pairs({
    opcode = "iwarp_rdma.opcode", last = "iwarp_ddp.last_flag", stag = "iwarp_ddp.stag",
    offset = "iwarp_ddp.tagged_offset", msn = "iwarp_ddp.msn", mo = "iwarp_ddp.mo",
    invalidate = "iwarp_rdma.inval_stag", length = "iwarp_rdma.rdmardsz",
    source = "iwarp_rdma.srcstag", source_offset = "iwarp_rdma.srcto",
    sink = "iwarp_rdma.sinkstag", sink_offset = "iwarp_rdma.sinkto",
    private = "iwarp_mpa.privatedata", request = "iwarp_mpa.key.req", reply = "iwarp_mpa.key.rep",
  }) do
    fields[name] = Field.new(abbreviation)
  end

  -- A frame can have several FPDUs, and the fields of those before: the last is the current one's.
  local function last(name)
    local all = { fields[name]() }
    return all[#all], #all
  end

  local function number(name)
    local found = last(name)
    return found and tonumber(found.value) or nil
  end

  -- The two halves of a 64-bit field.
  local function wide(name)
    local found = last(name)
    local value = found and found.value
    return value and { high = value:higher(), low = value:lower() }
  end

  -- Returns the connection of a packet, and which end sent it.
  local function connection(pinfo)
    local one = tostring(pinfo.src) .. " " .. pinfo.src_port
    local two = tostring(pinfo.dst) .. " " .. pinfo.dst_port
    local index = one < two and 0 or 1
    local key = index == 0 and one .. " " .. two or two .. " " .. one
    local found = state.connections[key]
    if not found then
      found = messages.connection()
      state.connections[key] = found
    end
    return found, index
  end

  -- Takes a Send segment by segment. Returns the whole Send with the last, or nil.
  local function assemble(conn, index, bytes, is_last)
    local parts = conn.parts and conn.parts[index]
    if is_last and not parts then
      return bytes, {}
    end
    conn.parts = conn.parts or {}
    parts = parts or { bytes = {}, entries = {} }
    conn.parts[index] = parts
    table.insert(parts.bytes, bytes)
    if not is_last then
      return nil, parts.entries
    end
    conn.parts[index] = nil
    return table.concat(parts.bytes), parts.entries
  end

  local handlers = {}

  function handlers.send(conn, index, bytes, event, opcode)
    local whole, entries = assemble(conn, index, bytes, last("last").value)
    local entry = { conn = conn }
    if not whole then
      -- Taken for RPC-over-RDMA by its first bytes, as the rest follows.
      local first = entries[1] and entries[1].claimed
      entry.claimed = first or conn.dialect or messages.dialect(bytes)
      table.insert(entries, entry)
      return entry.claimed and entry or nil
    end
    if not conn.dialect and not messages.dialect(whole) then
      return nil
    end
    event.invalidate = INVALIDATES[opcode] and number("invalidate") or nil
    entry.result = conn:send(index, whole, event)
    if #entries > 0 then
      entry.whole = whole
    end
    for _, part in ipairs(entries) do
      part.whole_in = event.frame
    end
    return entry
  end

  function handlers.write(conn, index, bytes, event)
    return { conn = conn, access = conn:write(index, number("stag"), wide("offset"), bytes, event) }
  end

  function handlers.read_request(conn, index, _, event)
    local sink = { handle = number("sink"), offset = wide("sink_offset") }
    local source, offset = number("source"), wide("source_offset")
    local length = number("length")
    return {
      conn = conn, access = conn:read_request(index, source, offset, length, sink, event),
    }
  end

  function handlers.read_response(conn, index, bytes, event)
    local handle, offset = number("stag"), wide("offset")
    local function matches(read)
      return read.handle == handle and messages.distance(read.offset, offset) or nil
    end
    return { conn = conn, access = conn:read_response(index, matches, bytes, event) }
  end

  -- Handles one DDP segment on the first pass. Returns an entry for later passes, or nil if it is
  -- not RPC-over-RDMA.
  local function handle(tvb, pinfo, opcode)
    local conn, index = connection(pinfo)
    local bytes = tvb:len() > 0 and tvb:raw() or ""
    local event = { frame = pinfo.number, at = pinfo.rel_ts }
    if SENDS[opcode] then
      return handlers.send(conn, index, bytes, event, opcode)
    elseif not conn.dialect then
      return nil
    elseif opcode == WRITE then
      return handlers.write(conn, index, bytes, event)
    elseif opcode == READ_REQUEST then
      return handlers.read_request(conn, index, bytes, event)
    elseif opcode == READ_RESPONSE then
      return handlers.read_response(conn, index, bytes, event)
    end
    return nil
  end

  local iwarp = {}

  function iwarp.dissect(tvb, pinfo, tree)
    -- tshark -2 without a filter makes no fields on its first pass; then the second is the first.
    local opcode, ordinal = last("opcode")
    if not opcode then
      return false
    end
    local key = pinfo.number .. " " .. ordinal
    local entry = state.entries[key]
    if entry == nil then
      entry = handle(tvb, pinfo, opcode.value) or false
      state.entries[key] = entry
    end
    if not entry then
      return false
    end
    show.entry(entry, tvb, pinfo, tree)
    return true
  end

  -- Takes the private data of connection set-up: the sizes of receive buffers (RFC 8797).
  function iwarp.setup(pinfo)
    if not (fields.request() or fields.reply()) then
      return
    end
    local conn, index = connection(pinfo)
    conn.established = true
    local private = fields.private()
    local data = private and private.range:raw() or ""
    local _, _, receive = data:match(PRIVATE_DATA)
    if receive then
      conn.ends[index].private_size = (receive:byte() + 1) * 1024
    end
  end

  return iwarp
end
