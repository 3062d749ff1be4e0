-- Tests of what the dissector does without Wireshark: `lua5.2 wireshark/test.lua`, and the same
-- with Lua 5.4, which later Wiresharks have. testing/wire-check tests the rest, with tshark.

local folder = arg[0]:match("^(.*[/\\])") or ""

local function load_part(name)
  return dofile(folder .. "rpcrdma/" .. name .. ".lua")
end

local xdr = load_part("xdr")
local walk = load_part("walk")
local dialects = load_part("dialects")(xdr)
local Memory = load_part("memory")(walk)
local messages = load_part("messages")(walk, dialects, xdr, Memory,
  load_part("working_group"))

local checks, failures = 0, 0

local function check(what, found, expected)
  checks = checks + 1
  if found ~= expected then
    failures = failures + 1
    print(string.format("%s: %s instead of %s", what, tostring(found), tostring(expected)))
  end
end

local function words(...)
  local parts = {}
  for _, number in ipairs({ ... }) do
    number = number % 4294967296
    table.insert(parts, string.char(math.floor(number / 16777216),
      math.floor(number / 65536) % 256, math.floor(number / 256) % 256, number % 256))
  end
  return table.concat(parts)
end

-- ------------------------------------------------------------------------------------------
-- Every vector is accepted or refused as the codecs do, with the same length.

local BEYOND_XDR = { short = true, version = true, retired = true, rule = true, level = true }

-- The rules by which the working group's version 2 refuses what XDR accepts.
local BROKEN = {
  read_order = true, position_zero = true, body_chunk = true, inv_handle = true,
  property_value = true,
}

-- The header types of the working group's version 2 that no payload follows: RDMA2_GRANT, RDMA2_CONNPROP and the
-- EXTERNAL types.
local WITHOUT_PAYLOAD = { [5] = true, [6] = true, [7] = true, [8] = true, [11] = true }

-- Returns whether a payload may follow a value. A damaged message of the working group's version 2 may have another
-- header type than the others of its file.
local function may_have_payload(type, bytes, payload)
  if type == "rpcrdma2wg_msg" and #bytes >= 16 then
    return bytes:sub(13, 15) ~= "\0\0\0" or not WITHOUT_PAYLOAD[bytes:byte(16)]
  end
  return payload == "true"
end

local function rules(result)
  local names = {}
  for _, violation in ipairs(result.violations) do
    table.insert(names, violation.rule)
  end
  return table.concat(names, " ")
end

local function is_broken(result)
  for _, violation in ipairs(result.violations) do
    if BROKEN[violation.rule] then
      return true
    end
  end
  return false
end

-- Whole messages, and operations and properties in one.
local samples = {}

local function sample(type, bytes)
  if type:find("_xprt_hdr", 1, true) or type:find("_msg", 1, true) then
    table.insert(samples, bytes)
  end
  for number, property in pairs(dialects[3].properties) do
    if property.type == type then
      local padded = bytes .. ("\0"):rep(walk.round_up(#bytes))
      table.insert(samples, words(7, 2, 8, 7, 1, number, #bytes) .. padded)
    end
  end
  for number, message in pairs(dialects[3].messages) do
    if message.type == type then
      table.insert(samples, words(7, 2, 8, number) .. bytes)
    end
  end
  for number, operation in pairs(dialects[2].operations) do
    if operation.type == type then
      local header = words(7, 2, 8, 5, #samples % 2, number, #bytes)
      table.insert(samples, header .. bytes .. ("\0"):rep(walk.round_up(#bytes) + 40))
    end
  end
end

local function check_vectors(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  local type, payload = text:match('"type": "([%w_]+)", "payload": (%a+)')
  local count = 0
  for row in text:gmatch('{"bytes"[^\n]*') do
    local bytes = row:match('"bytes": "(%x*)"'):gsub("%x%x", function(digits)
      return string.char(tonumber(digits, 16))
    end)
    local reason = row:match('"reason": "([%w-]+)"')
    -- Values of simple types stand in a structure of one field here.
    local types = setmetatable({
      [""] = { kind = "struct", fields = { { name = "value", type = type, shape = "one" } } },
    }, { __index = xdr.types })
    local read = walk.read(types, "", bytes)
    local good = not read.fault and #read.notes == 0
      and (may_have_payload(type, bytes, payload) or read.length == #bytes)
    local name = path:match("[^/\\]*$") .. " " .. count
    if reason == "rule" or reason == "level" then
      -- What these break, messages.lua finds: the sample is the whole message.
      sample(type, bytes)
      local result = messages.connection():send(0, samples[#samples], { frame = 1, at = 0 })
      -- XDR may refuse it as well, and then before the rule is looked at.
      local refused = row:find('"xdr": false', 1, true) and not good
      check(name .. ": " .. reason, is_broken(result) or refused, true)
    elseif row:find('"accept": true', 1, true) then
      check(name, good, true)
      check(name .. ": length", read.length, tonumber(row:match('"length": (%d+)')))
    elseif not BEYOND_XDR[reason] then
      check(name .. ": " .. reason, good, false)
    end
    count = count + 1
    sample(type, bytes)
  end
  return count
end

local vectors = 0
local list = assert(io.popen("ls '" .. folder .. "../drafts/vectors/'*.json"))
for path in list:lines() do
  vectors = vectors + check_vectors(path)
end
list:close()
check("there are vectors", vectors > 0, true)

-- ------------------------------------------------------------------------------------------
-- Messages are put together.

local CLIENT, SERVER = 0, 1
local frame = 0

local function event()
  frame = frame + 1
  return { frame = frame, at = frame / 1000 }
end

local function call_header(xid, version, procedure)
  return words(xid, 0, 2, 100003, version, procedure, 0, 0, 0, 0)
end

local function reply_header(xid)
  return words(xid, 1, 0, 0, 0, 0)
end

local function wide(high, low)
  return { high = high, low = low }
end

-- Two read chunks, the first of a length that is rounded up, and the second first in the list. Each
-- is read in two pieces; the offsets cross 2^32.
do
  local conn = messages.connection()
  local body = call_header(1, 3, 7)
  local payload = body .. words(5) .. words(8) .. words(0xabcd)
  local reads = words(1, 56, 0x22, 8, 0, 0x2000, 1, 44, 0x11, 5, 1, 0xfffffffe, 0)
  local message = words(1, 1, 8, 0) .. reads .. words(0, 0)
  local result = conn:send(CLIENT, message .. payload, event())
  check("two chunks: call", rules(result), "")
  check("two chunks: nothing yet", #result.payloads, 0)
  local function read(handle, offset, length, data)
    local sink = { handle = 9, offset = wide(0, handle) }
    local asked = conn:read_request(SERVER, handle, offset, length, sink, event())
    check("two chunks: request", rules(asked), "")
    local last
    for at = 0, length - 1, 4 do
      local function matches(pending)
        return pending.offset.low == handle and at or nil
      end
      last = conn:read_response(CLIENT, matches, data:sub(at + 1, at + 4), event())
      check("two chunks: response", rules(last), "")
    end
    return last
  end
  local first = read(0x11, wide(1, 0xfffffffe), 5, "hello")
  check("two chunks: one of two", #first.payloads, 0)
  local second = read(0x22, wide(0, 0x2000), 8, "wideword")
  check("two chunks: both", #second.payloads, 1)
  local whole = body .. words(5) .. "hello\0\0\0" .. words(8) .. "wideword" .. words(0xabcd)
  check("two chunks: message", second.payloads[1] and second.payloads[1].bytes, whole)
  check("two chunks: where", result.reassembled_in, second.frame)
end

-- NFS version 4: the data of a READ lies between results, and other words have the same number.
do
  local conn = messages.connection()
  local lists = words(0, 1, 1, 0x33, 6, 0, 0x1000, 0, 0)
  conn:send(CLIENT, words(2, 1, 8, 0) .. lists .. call_header(2, 4, 1), event())
  conn:write(SERVER, 0x33, wide(0, 0x1000), "abc", event())
  conn:write(SERVER, 0x33, wide(0, 0x1003), "def", event())
  -- COMPOUND: status, tag, three results: PUTFH, READ with 6 bytes, GETATTR with a 6.
  local before = words(0, 0, 3, 22, 0, 25, 0, 1, 6)
  local after = words(9, 0, 6, 6)
  local reply = words(2, 1, 8, 0) .. lists .. reply_header(2) .. before .. after
  local result = conn:send(SERVER, reply, event())
  check("version 4: rules", rules(result), "")
  local whole = reply_header(2) .. before .. "abcdef\0\0" .. after
  check("version 4: message", result.payloads[1] and result.payloads[1].bytes, whole)
end

-- A call in the other direction has the XID of one that is outstanding (RFC 8167, section 4).
do
  local conn = messages.connection()
  local function send(from, xid, payload)
    return conn:send(from, words(xid, 1, 8, 0, 0, 0, 0) .. payload, event())
  end
  local call = send(CLIENT, 3, call_header(3, 3, 0))
  local callback = send(SERVER, 3, call_header(3, 3, 0))
  local answer = send(CLIENT, 3, reply_header(3))
  local reply = send(SERVER, 3, reply_header(3))
  for _, result in ipairs({ call, callback, answer, reply }) do
    check("callback: rules", rules(result), "")
    check("callback: message", #result.payloads, 1)
  end
  check("callback: its reply", callback.response_in, answer.frame)
  check("callback: the call's reply", call.response_in, reply.frame)
  check("callback: time", math.floor(reply.time * 1000 + 0.5), 3)
end

-- Both messages of a batch are calls, and each takes a credit.
do
  local conn = messages.connection()
  local C = xdr.constants
  local max = words(1, C.XCHAR_BATCHMAX, 4, 2, 0)
  conn:send(SERVER, words(9, 2, 8, 5, 0, C.ROPT_INITXCH, #max) .. max, event())
  local payload = call_header(4, 3, 0) .. call_header(5, 3, 0)
  local info = words(2, 40, 40)
  local batch = words(4, 2, 8, 5, 0, C.ROPT_BATCH, #info) .. info .. payload
  local result = conn:send(CLIENT, batch, event())
  check("batch: one credit is granted", rules(result), "credits_exceeded")
  check("batch: messages", #result.payloads, 2)
  local replies = reply_header(4) .. reply_header(5)
  info = words(2, 24, 24)
  conn.ends[CLIENT].batch = 2
  local both = words(4, 2, 8, 5, 1, C.ROPT_BATCH, #info) .. info .. replies
  check("batch: replies", rules(conn:send(SERVER, both, event())), "")
  check("batch: none is left", next(conn.ends[CLIENT].calls), nil)
end

-- The credits of an error never raise the limit, but may lower it.
for _, version in ipairs({ 1, 2 }) do
  local conn = messages.connection()
  local NO_CHUNKS = version == 1 and words(0, 0, 0) or words(0, 0, 0, 0)
  local IN_REPLY = version == 1 and words(0, 0, 0) or words(1, 0, 0, 0)
  local function call(xid, expected)
    local bytes = words(xid, version, 8, 0) .. NO_CHUNKS .. call_header(xid, 3, 0)
    local name = "an error's credits: version " .. version .. ", call " .. xid
    check(name, rules(conn:send(CLIENT, bytes, event())), expected)
  end
  local function reply(xid, credit)
    local bytes = words(xid, version, credit, 0) .. IN_REPLY .. reply_header(xid)
    check("an error's credits: reply", rules(conn:send(SERVER, bytes, event())), "")
  end
  local function fail(xid, credit)
    local bytes = words(xid, version, credit, 4, 2)
    check("an error's credits", rules(conn:send(SERVER, bytes, event())), "error_reported")
  end
  call(1, "")
  -- Before the first reply, one call may be outstanding.
  fail(1, 8)
  call(2, "")
  call(3, "credits_exceeded")
  reply(2, 8)
  reply(3, 8)
  call(4, "")
  call(5, "")
  fail(4, 2)
  call(6, "")
  call(7, "credits_exceeded")
end

-- An operation of the server that answers no call grants credits for the first calls already.
do
  local conn = messages.connection()
  local C = xdr.constants
  local function opening(from, direction)
    local info = words(0, 0)
    return conn:send(from, words(9, 2, 2, 5, direction, C.ROPT_INITXCH, #info) .. info, event())
  end
  check("an operation's credits: client", rules(opening(CLIENT, C.RDMA2_CALL)), "")
  check("an operation's credits: server", rules(opening(SERVER, C.RDMA2_REPLY)), "")
  for xid, expected in ipairs({ "", "", "credits_exceeded" }) do
    local bytes = words(xid, 2, 8, 0, 0, 0, 0, 0) .. call_header(xid, 3, 0)
    local result = conn:send(CLIENT, bytes, event())
    check("an operation's credits: call " .. xid, rules(result), expected)
  end
end

-- ------------------------------------------------------------------------------------------
-- InfiniBand, with packets in place of Wireshark's: an end that misses a response asks again for the
-- rest of its read, and what it reads after that is still the next call's.

-- Returns a function that dissects a packet, and returns the entry for it: who sends it, the opcode, the
-- number, the payload, and the memory that it names.
local function infiniband_packets()
  local packet
  Field = {
    new = function(name)
      return function()
        return packet[name] and { value = packet[name] }
      end
    end,
  }
  local shown
  local state = { entries = {}, directions = {}, unpaired = {}, ports = 0 }
  local function entry(found)
    shown = found
  end
  local infiniband = load_part("infiniband")(messages, { entry = entry }, walk, state)
  Field = nil
  local frame = 0
  return function(from, opcode, number, bytes, named)
    frame = frame + 1
    packet = {
      ["infiniband.bth.opcode"] = opcode, ["infiniband.bth.padcnt"] = 0,
      ["infiniband.bth.destqp"] = 17 + from, ["infiniband.bth.psn"] = number,
    }
    if named then
      packet["infiniband.reth.va"] = {
        higher = function() return 0 end, lower = function() return named.address end,
      }
      packet["infiniband.reth.r_key"] = named.handle
      packet["infiniband.reth.dmalen"] = named.length
    end
    local tvb = setmetatable({}, { __call = function(self) return self end })
    function tvb.len() return #bytes end
    function tvb.raw(_, at, length) return bytes:sub(at + 1, at + length) end
    function tvb.tvb() return tvb end
    shown = nil
    local pinfo = {
      number = frame, rel_ts = frame / 1000, src = "end " .. from, dst = "end " .. 1 - from,
    }
    infiniband.dissect(tvb, pinfo, {})
    return shown
  end
end

-- The capture is made where `lost` responses are missing, or, with none, where all are sent.
for _, lost in ipairs({ false, true }) do
  local packet = infiniband_packets()
  local name = lost and "a lost response: " or "a response that is lost later: "
  -- A WRITE of 10 bytes at position 44, and one of 7: packets of 4 bytes.
  local function call(xid, handle, length, number)
    local reads = words(1, 44, handle, length, 0, 0x1000, 0, 0, 0)
    local payload = call_header(xid, 3, 7) .. words(length)
    return packet(CLIENT, 4, number, words(xid, 1, 8, 0) .. reads .. payload)
  end
  local function response(number, opcode, data)
    return packet(CLIENT, opcode, number, data)
  end
  local function ask(number, address, handle, length)
    local named = { address = address, handle = handle, length = length }
    return packet(SERVER, 12, number, "", named)
  end
  -- The server speaks first in its direction with a read.
  call(1, 0x11, 10, 100)
  ask(200, 0x1000, 0x11, 10)
  response(200, 13, "abcd")
  local last
  if not lost then
    response(201, 14, "efgh")
  end
  last = response(202, 15, "ij")
  check(name .. "where all were sent", #last.access.payloads, lost and 0 or 1)
  ask(201, 0x1004, 0x11, 6)
  local middle = response(201, 13, "efgh")
  response(202, 15, "ij")
  last = lost and middle or last
  local whole = call_header(1, 3, 7) .. words(10) .. "abcdefghij\0\0"
  check(name .. "the call", last.access.payloads[1] and last.access.payloads[1].bytes, whole)
  packet(SERVER, 4, 203, words(1, 1, 8, 0, 0, 0, 0) .. reply_header(1))
  call(2, 0x22, 7, 101)
  ask(204, 0x1000, 0x22, 7)
  response(204, 13, "klmn")
  last = response(205, 15, "opq")
  check(name .. "rules", rules(last.access), "")
  whole = call_header(2, 3, 7) .. words(7) .. "klmnopq\0"
  check(name .. "the next call", last.access.payloads[1] and last.access.payloads[1].bytes, whole)
end

-- ------------------------------------------------------------------------------------------
-- Version 2 of the working group.

local GRANT, PROPERTIES_MIDDLE, PROPERTIES_FINAL = 5, 6, 7
local CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE = 8, 9, 10
local REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE = 11, 12, 13

-- Returns a connection, and a function that sends on it: the end, the XID, the header type, the
-- words of the header, the payload, and the handle to invalidate. Each end has 1000 credits.
local function begin()
  local conn = messages.connection()
  local counts = { [0] = 0, [1] = 0 }
  local function send(from, xid, type, fields, payload, invalidate)
    local now = event()
    now.invalidate = invalidate
    counts[from] = counts[from] + 1
    local header = words(xid, 2, counts[1 - from] + 1000, type, table.unpack(fields))
    return conn:send(from, header .. (payload or ""), now)
  end
  return conn, send
end

-- The same, when both ends have sent their properties. `level` is the client's support for calls
-- in reverse direction.
local function working_group(level)
  local conn, send = begin()
  for from = CLIENT, SERVER do
    local result = send(from, 90 + from, PROPERTIES_FINAL, { 1, 5, 4, level or 0 })
    check("properties: rules", rules(result), "")
  end
  return conn, send
end

-- A call in three parts whose data is read, and a reply in two whose data is written: chunks stand
-- in the last part and count in the whole. A grant may stand between the parts.
do
  local conn, send = working_group()
  local body = call_header(7, 3, 7) .. words(5)
  local payload = body .. words(0xabcd)
  local first = send(CLIENT, 7, CALL_MIDDLE, { 32 }, payload:sub(1, 16))
  check("parts: first", rules(first), "")
  check("parts: grant", rules(send(CLIENT, 0, GRANT, {})), "")
  local second = send(CLIENT, 7, CALL_MIDDLE, { 12 }, payload:sub(17, 36))
  check("parts: second", rules(second), "")
  local lists = { 0x44, 1, 44, 0x33, 5, 0, 0x1000, 0, 1, 1, 0x44, 9, 0, 0x2000, 0, 0 }
  local last = send(CLIENT, 7, CALL_INLINE, lists, payload:sub(37))
  check("parts: last", rules(last), "")
  check("parts: nothing yet", #last.payloads, 0)
  local sink = { handle = 9, offset = wide(0, 0) }
  local asked = conn:read_request(SERVER, 0x33, wide(0, 0x1000), 5, sink, event())
  check("parts: read", rules(asked), "")
  local complete = conn:read_response(CLIENT, function() return 0 end, "hello", event())
  local whole = body .. "hello\0\0\0" .. words(0xabcd)
  check("parts: call", complete.payloads[1] and complete.payloads[1].bytes, whole)
  for _, part in ipairs({ first, second, last }) do
    check("parts: where the call is complete", part.reassembled_in, complete.frame)
  end
  local written = conn:write(SERVER, 0x44, wide(0, 0x2000), "ninebytes", event())
  check("parts: written", rules(written), "")
  local results = reply_header(7) .. words(0, 9)
  local one = send(SERVER, 7, REPLY_MIDDLE, { 16 }, results:sub(1, 16))
  check("parts: reply begins", rules(one), "")
  local returned = { 1, 1, 0x44, 9, 0, 0x2000, 0 }
  local two = send(SERVER, 7, REPLY_INLINE, returned, results:sub(17), 0x44)
  check("parts: reply", rules(two), "")
  check("parts: data", two.payloads[1] and two.payloads[1].bytes, results .. "ninebytes\0\0\0")
  check("parts: the call's reply", first.response_in, two.frame)
  check("parts: the reply's call", one.request_in, first.frame)
  check("parts: where the reply is complete", one.reassembled_in, two.frame)
end

-- A call and a reply in chunks.
do
  local conn, send = working_group()
  local payload, answer = call_header(8, 3, 1), reply_header(8)
  local chunks = { 0, 1, 0, 0x55, 40, 0, 0, 0, 0, 0, 1, 1, 0x66, 100, 0, 0 }
  check("external: call", rules(send(CLIENT, 8, CALL_EXTERNAL, chunks)), "")
  local sink = { handle = 9, offset = wide(0, 0) }
  conn:read_request(SERVER, 0x55, wide(0, 0), 40, sink, event())
  local read = conn:read_response(CLIENT, function() return 0 end, payload, event())
  check("external: call's message", read.payloads[1] and read.payloads[1].bytes, payload)
  conn:write(SERVER, 0x66, wide(0, 0), answer, event())
  local reply = send(SERVER, 8, REPLY_EXTERNAL, { 0, 1, 1, 0x66, #answer, 0, 0 })
  check("external: reply", rules(reply), "")
  check("external: reply's message", reply.payloads[1] and reply.payloads[1].bytes, answer)
end

-- Credits are a count of messages, which wraps.
do
  local conn = working_group()
  local start = 4294967290
  for index = CLIENT, SERVER do
    conn.ends[index].messages, conn.ends[index].limit = start, start + 1
  end
  local function send(from, xid, credit)
    if xid == 0 then
      return conn:send(from, words(0, 2, credit, GRANT), event())
    end
    local header = words(xid, 2, credit, CALL_INLINE, 0, 0, 0, 0)
    return conn:send(from, header .. call_header(xid, 3, 0), event())
  end
  local first = send(CLIENT, 1, start + 20)
  check("credits: the one that was told", rules(first), "")
  check("credits: the sum", first.flow.peer_sent, start)
  check("credits: the rest", first.flow.peer_may_send, 20)
  check("credits: one more is a grant", rules(send(CLIENT, 0, start + 20)), "")
  check("credits: and no other", rules(send(CLIENT, 2, start + 20)), "limit_exceeded")
  check("credits: more are told", rules(send(SERVER, 0, start + 13)), "")
  for xid = 3, 12 do
    check("credits: beyond 2^32", rules(send(CLIENT, xid, start + 20)), "")
  end
  check("credits: none is left", rules(send(CLIENT, 13, start + 20)), "limit_exceeded")
  -- What was told before still counts, since messages may be on their way.
  check("credits: a lower limit", rules(send(SERVER, 0, start + 30)), "")
  check("credits: is shown", send(SERVER, 0, start).flow.peer_may_send, 0)
  check("credits: and not enforced", rules(send(CLIENT, 14, start + 20)), "")
  -- A server of version 1 has other credits.
  conn = messages.connection()
  conn:send(CLIENT, words(90, 2, 8, PROPERTIES_MIDDLE, 0), event())
  local refused = conn:send(SERVER, words(90, 2, 8, 4, 1, 1, 1), event())
  check("credits: of version 1", rules(refused), "error_reported")
  local next_ = conn:send(CLIENT, words(90, 2, 8, PROPERTIES_FINAL, 0), event())
  check("credits: do not count", rules(next_), "limit_exceeded")
  -- More than can be compared, and fewer than none.
  for _, credit in ipairs({ 2147483700, 4294967295 }) do
    local bytes = words(90, 2, credit, PROPERTIES_FINAL, 0)
    check("credits: " .. credit, rules(messages.connection():send(CLIENT, bytes, event())),
      "credit_range")
  end
end

-- The dialect is that of the first message: errors and type 5 are in both.
do
  local function dialect(...)
    local conn = messages.connection()
    local found
    for _, bytes in ipairs({ ... }) do
      found = conn:send(CLIENT, bytes, event()).dialect
    end
    return found
  end
  local grant, long = words(0, 2, 1, 5), words(0, 2, 1, 5, 0, 1, 0)
  local failed = words(1, 2, 1, 4, 2)
  check("dialect: grant", dialect(grant), dialects[3])
  check("dialect: RDMA2_OPTIONAL", dialect(long), dialects[2])
  check("dialect: error", dialect(failed), dialects[2])
  check("dialect: error after a grant", dialect(grant, failed), dialects[3])
  check("dialect: after a grant", dialect(grant, long), dialects[3])
  check("dialect: after RDMA2_OPTIONAL", dialect(long, grant), dialects[2])
  check("dialect: after an error", dialect(failed, words(1, 2, 1, 7, 0)), dialects[3])
  for type = 6, 13 do
    check("dialect: type " .. type, dialect(words(1, 2, 1, type, 0)), dialects[3])
  end
end

-- A dialect with a version number of its own needs one more table, and nothing else.
do
  local third = setmetatable({ version = 3 }, { __index = dialects[2] })
  local more = load_part("messages")(walk, { dialects[1], dialects[2], dialects[3], third }, xdr,
    Memory, load_part("working_group"))
  local conn = more.connection()
  local call = words(1, 3, 8, 0, 0, 0, 0, 0) .. call_header(1, 3, 0)
  local result = conn:send(CLIENT, call, event())
  check("third version: dialect", result.dialect, third)
  check("third version: rules", rules(result), "")
  check("third version: message", #result.payloads, 1)
  local unknown = conn:send(CLIENT, words(1, 4, 8, 0, 0, 0, 0, 0), event())
  check("third version: another", rules(unknown), "version")
end

-- What a rule does not forbid.
do
  local call, reply = call_header(7, 3, 0), reply_header(7)
  local NONE = { 0, 0, 0, 0 }
  local conn, send = working_group(2)
  -- A client that takes calls in several parts.
  local middle = send(SERVER, 7, CALL_MIDDLE, { 20 }, call:sub(1, 20))
  check("reverse: part", rules(middle), "")
  local last = send(SERVER, 7, CALL_INLINE, NONE, call:sub(21))
  check("reverse: call", rules(last), "")
  check("reverse: message", last.payloads[1].bytes, call)
  check("reverse: reply", rules(send(CLIENT, 7, REPLY_INLINE, { 0 }, reply)), "")
  -- A write chunk that is not used comes back empty, or with its segments.
  local offered = { 0, 0, 1, 1, 0x44, 8, 0, 0, 0, 0 }
  for _, lists in ipairs({ { 0 }, { 1, 0, 0 }, { 1, 1, 0x44, 0, 0, 0, 0 } }) do
    check("unused: call", rules(send(CLIENT, 7, CALL_INLINE, offered, call)), "")
    check("unused: reply", rules(send(SERVER, 7, REPLY_INLINE, lists, reply)), "")
  end
  -- The parts that follow an error belong to a call that is over.
  send(CLIENT, 7, CALL_MIDDLE, { 32 }, call:sub(1, 8))
  check("over: error", rules(send(SERVER, 7, 4, { 5 })), "error_reported")
  local late = send(CLIENT, 7, CALL_MIDDLE, { 16 }, call:sub(9, 24))
  check("over: part", rules(late), "")
  late = send(CLIENT, 7, CALL_INLINE, NONE, call:sub(25))
  check("over: last part", rules(late), "")
  check("over: no message", #late.payloads, 0)
  -- The sender gives up what was refused, and an error may stand between parts.
  send(CLIENT, 7, CALL_MIDDLE, { 32 }, call:sub(1, 8))
  send(SERVER, 7, 4, { 5 })
  check("over: another", #send(CLIENT, 8, CALL_INLINE, NONE, call_header(8, 3, 0)).payloads, 1)
  send(SERVER, 9, CALL_INLINE, NONE, call_header(9, 3, 0))
  send(CLIENT, 7, CALL_MIDDLE, { 32 }, call:sub(1, 8))
  check("between: error", rules(send(CLIENT, 9, 4, { 2 })), "error_reported")
  check("between: message", #send(CLIENT, 7, CALL_INLINE, NONE, call:sub(9)).payloads, 1)
  send(SERVER, 7, REPLY_INLINE, { 0 }, reply)
  check("over: no call", conn.ends[CLIENT].calls[7], nil)
  check("over: the next one", #send(CLIENT, 7, CALL_INLINE, NONE, call).payloads, 1)
end

-- Each rule, on a connection of its own: the last step breaks it, and those before are right.
do
  local call, reply = call_header(7, 3, 0), reply_header(7)
  local function run(expected, send, steps)
    for n, step in ipairs(steps) do
      local result = send(table.unpack(step, 1, 6))
      local is_error = step[3] == 4 and n < #steps
      check(expected .. ": step " .. n, rules(result),
        n == #steps and expected or is_error and "error_reported" or "")
    end
  end
  local function case(expected, ...)
    local _, send = working_group()
    run(expected, send, { ... })
  end
  local function first(expected, ...)
    local _, send = begin()
    run(expected, send, { ... })
  end
  local function inline(lists, payload)
    return { CLIENT, 7, CALL_INLINE, lists or { 0, 0, 0, 0 }, payload or call }
  end
  local function answer(lists, invalidate)
    return { SERVER, 7, REPLY_INLINE, lists, reply, invalidate }
  end
  local function failed(...)
    return { SERVER, 7, 4, { ... } }
  end
  -- One write chunk of two segments, of which the first may be invalidated.
  local offered = inline({ 0x44, 0, 1, 2, 0x44, 8, 0, 0, 0x45, 8, 0, 8, 0, 0 })
  local part = { CLIENT, 7, CALL_MIDDLE, { 8 }, call }

  case("header_type", { CLIENT, 7, 14, {} })
  case("header_type", { CLIENT, 7, 0, { 0, 0, 0, 0 }, call })
  case("form", { CLIENT, 0, GRANT, { 0 } })
  case("form", { CLIENT, 7, CALL_MIDDLE, { 8 } })
  case("grant_xid", { CLIENT, 7, GRANT, {} })
  case("two_payloads", { CLIENT, 7, CALL_EXTERNAL, { 0, 1, 0, 1, 40, 0, 0, 0, 0, 0, 0 }, call })
  case("xid", inline(nil, call_header(8, 3, 0)))
  case("direction", inline(nil, call_header(7, 3, 0):sub(1, 4) .. reply:sub(5)))
  case("too_long send_size", inline(nil, call .. ("\0"):rep(4096)))
  first("first_too_long", inline(nil, call .. ("\0"):rep(1024)))
  first("send_size", { CLIENT, 9, PROPERTIES_FINAL, { 1, 1, 4, 60 } },
    { SERVER, 9, PROPERTIES_FINAL, { 0 } }, inline())
  first("too_long", { CLIENT, 9, PROPERTIES_FINAL, { 0 } },
    { SERVER, 9, PROPERTIES_FINAL, { 1, 2, 4, 60 } }, inline())
  case("properties_again", { CLIENT, 91, PROPERTIES_FINAL, { 0 } })
  case("properties_again", { CLIENT, 91, PROPERTIES_MIDDLE, { 0 } })
  first("properties_interrupted", { CLIENT, 9, PROPERTIES_MIDDLE, { 0 } },
    { SERVER, 9, PROPERTIES_FINAL, { 0 } }, inline())
  first("limit_exceeded", { CLIENT, 9, PROPERTIES_MIDDLE, { 0 } },
    { CLIENT, 9, PROPERTIES_FINAL, { 0 } })
  -- Announced sizes are not those of messages with properties.
  first("too_long send_size unknown_property", { CLIENT, 9, PROPERTIES_FINAL, { 1, 2, 4, 60000 } },
    { SERVER, 9, PROPERTIES_FINAL, { 1, 99, 5000 }, ("\0"):rep(5000) })
  first("", { CLIENT, 9, PROPERTIES_MIDDLE, { 1, 1, 4, 20 } },
    { SERVER, 9, PROPERTIES_FINAL, { 0 } }, { CLIENT, 9, PROPERTIES_FINAL, { 1, 1, 4, 20 } })
  -- The server knows the client's version by its first message.
  first("unknown_property", { CLIENT, 9, PROPERTIES_FINAL, { 0 } },
    { SERVER, 9, PROPERTIES_FINAL, { 1, 99, 2000 }, ("\0"):rep(2000) })
  -- No bytes stand for the default.
  first("reverse", { CLIENT, 9, PROPERTIES_MIDDLE, { 1, 5, 4, 3 } },
    { SERVER, 9, PROPERTIES_FINAL, { 0 } }, { CLIENT, 9, PROPERTIES_FINAL, { 1, 5, 0 } },
    { SERVER, 7, CALL_INLINE, { 0, 0, 0, 0 }, call })
  first("property_value", { CLIENT, 9, PROPERTIES_FINAL, { 1, 5, 4, 4 } })
  first("form property_value", { CLIENT, 9, PROPERTIES_FINAL, { 1, 5, 8, 0, 0 } })
  first("form property_value", { CLIENT, 9, PROPERTIES_FINAL, { 1, 2, 2, 0 } })
  first("unknown_property", { CLIENT, 9, PROPERTIES_FINAL, { 1, 7, 0 } })
  case("part_interrupted", part, { CLIENT, 8, CALL_INLINE, { 0, 0, 0, 0 }, call_header(8, 3, 0) })
  case("part_interrupted", part, { CLIENT, 7, REPLY_INLINE, { 0 }, reply })
  case("part_interrupted", part, { CLIENT, 7, CALL_EXTERNAL, { 0, 0, 0, 0, 0 } })
  case("remaining", { CLIENT, 7, CALL_MIDDLE, { 0 }, call })
  case("remaining", part, inline(nil, words(1)))
  case("remaining", part, { CLIENT, 7, CALL_MIDDLE, { 8 }, words(1) })
  case("remaining", part, { CLIENT, 7, CALL_MIDDLE, { 0 }, words(1, 2) })
  case("", inline({ 0, 1, 40, 1, 4, 0, 0, 1, 40, 2, 4, 0, 0, 0, 0, 0 }))
  case("position", inline({ 0, 1, 38, 1, 4, 0, 0, 0, 0, 0 }))
  case("position", inline({ 0, 1, 44, 1, 4, 0, 0, 0, 0, 0 }))
  case("read_order", inline({ 0, 1, 40, 1, 4, 0, 0, 1, 36, 2, 4, 0, 0, 0, 0, 0 }))
  case("position_zero", inline({ 0, 1, 0, 1, 4, 0, 0, 0, 0, 0 }))
  case("position_zero", { CLIENT, 7, CALL_EXTERNAL, { 0, 1, 4, 1, 40, 0, 0, 0, 0, 0, 0 } })
  case("body_chunk", { CLIENT, 7, CALL_EXTERNAL, { 0, 0, 0, 0, 0 } })
  case("body_chunk", { SERVER, 7, REPLY_EXTERNAL, { 0, 0 } })
  case("inv_handle", inline({ 1, 0, 0, 0 }))
  case("wrong_length", { CLIENT, 7, CALL_EXTERNAL, { 0, 1, 0, 1, 41, 0, 0, 0, 0, 0, 0 } })
  case("segment_size", inline({ 0, 0, 1, 1, 1, 0x100001, 0, 0, 0, 0 }))
  do
    local many = { 0, 0, 1, 17 }
    for _ = 1, 17 * 4 do
      table.insert(many, 0)
    end
    table.insert(many, 0)
    table.insert(many, 0)
    case("segment_count", inline(many))
  end
  case("reverse", { SERVER, 7, CALL_INLINE, { 0, 0, 0, 0 }, call })
  case("invalidated", offered, answer({ 0 }, 0x45))
  case("invalidated", offered, { SERVER, 7, REPLY_MIDDLE, { 4 }, reply, 0x44 })
  case("invalidated", offered, { SERVER, 0, GRANT, {}, nil, 0x44 })
  case("no_invalidation", inline(), answer({ 0 }, 0x44))
  case("returned_chunks", offered, answer({ 1, 1, 0x44, 0, 0, 0, 0 }))
  case("unmatched", answer({ 0 }))
  case("error_reported unmatched", failed(2))
  case("error_reported", inline(), failed(2))
  case("error_reported", inline(), failed(77))
  -- A code that is not known is discarded: the call goes on.
  case("", inline(), failed(77), answer({ 0 }))
  case("unmatched", inline(), failed(2), answer({ 0 }))
  case("error_reported contradiction", offered, failed(6, 0))
  case("error_reported contradiction", offered, failed(7, 1))
  case("error_reported contradiction", offered, failed(8, 2))
  case("error_reported contradiction", offered, failed(9, 2, 17))
  case("error_reported contradiction", offered, failed(9, 1, 16))
  case("error_reported contradiction", offered, failed(9, 0, 1))
  case("error_reported contradiction", inline({ 0, 0, 0, 1, 1, 0x44, 8, 0, 0 }), failed(10, 8))
  case("error_reported", offered, failed(9, 1, 17))
  case("error_reported", offered, failed(9, 0, 0))
  case("error_reported", inline(), failed(10, 8))

  -- Levels of support for calls in reverse direction.
  for level, wrong in pairs({
    { SERVER, 7, CALL_MIDDLE, { 8 }, call },
    { SERVER, 7, CALL_INLINE, { 0, 0, 1, 1, 1, 8, 0, 0, 0, 0 }, call },
  }) do
    local _, send = working_group(level)
    run("reverse", send, { wrong })
  end

  -- Data that is not where the reply says.
  local conn, send = working_group()
  run("written", send, {})
  send(table.unpack(offered, 1, 5))
  conn:write(SERVER, 0x44, wide(0, 0), "12345678", event())
  local returned = { 1, 2, 0x44, 5, 0, 0, 0x45, 0, 0, 8, 0 }
  check("padding in a chunk", rules(send(table.unpack(answer(returned), 1, 6))), "wrong_length")
  conn, send = working_group()
  send(table.unpack(offered, 1, 5))
  conn:write(SERVER, 0x45, wide(0, 8), "1234", event())
  returned = { 1, 2, 0x44, 0, 0, 0, 0x45, 4, 0, 8, 0 }
  local skipped = send(table.unpack(answer(returned), 1, 6))
  check("a gap in a chunk", rules(skipped), "returned_chunks")

  -- The message in a chunk is another's, or not whole.
  local chunk = { 0, 0, 0, 1, 1, 0x44, 40, 0, 0 }
  for wrong, bytes in pairs({ xid = reply_header(8), wrong_length = reply .. "\0\0" }) do
    conn, send = working_group()
    send(CLIENT, 7, CALL_INLINE, chunk, call)
    conn:write(SERVER, 0x44, wide(0, 0), bytes, event())
    local external = send(SERVER, 7, REPLY_EXTERNAL, { 0, 1, 1, 0x44, #bytes, 0, 0 })
    check("reply chunk: " .. wrong, rules(external), wrong)
  end
  conn, send = working_group()
  send(CLIENT, 7, CALL_EXTERNAL, { 0, 1, 0, 0x55, 40, 0, 0, 0, 0, 0, 0 })
  local sink = { handle = 9, offset = wide(0, 0) }
  conn:read_request(SERVER, 0x55, wide(0, 0), 40, sink, event())
  local read = conn:read_response(CLIENT, function() return 0 end, call_header(8, 3, 1), event())
  check("call chunk: xid", rules(read), "xid")

  -- The rest of a message whose count is wrong belongs to nothing.
  conn, send = working_group()
  send(table.unpack(part))
  send(CLIENT, 7, CALL_MIDDLE, { 8 }, words(1))
  local rest = send(table.unpack(inline(nil, words(1, 2)), 1, 5))
  check("wrong count: the rest", rules(rest), "")
  check("wrong count: no message", #rest.payloads, 0)

  -- A bad value, and nothing of its message is taken.
  conn, send = begin()
  send(CLIENT, 9, PROPERTIES_FINAL, { 2, 1, 4, 60, 5, 4, 9 })
  send(SERVER, 9, PROPERTIES_FINAL, { 0 })
  check("a bad value changes nothing", rules(send(table.unpack(inline(), 1, 5))), "")

  -- The version of a connection.
  conn, send = working_group()
  local other = conn:send(CLIENT, words(7, 1, 8, 0, 0, 0, 0) .. call, event())
  check("version_changed", rules(other), "version_changed")
end

-- ------------------------------------------------------------------------------------------
-- Its placement extension.

local CALL_PLACED_MIDDLE, CALL_PLACED = 0xffffff01, 0xffffff02
local REPLY_PLACED_MIDDLE, REPLY_PLACED = 0xffffff03, 0xffffff04

-- One segment for headers and payload, and three for data: at 1024, 2048 and 3072.
local STRUCTURE = { 0xffffff01, 36, 2, 1, 1024, 0, 0, 3, 1024, 8, 1 }

-- Joins lists of words.
local function concat(...)
  local all = {}
  for _, list in ipairs({ ... }) do
    for _, word in ipairs(list) do
      table.insert(all, word)
    end
  end
  return all
end

-- Returns the bytes behind a header of so many words, prefix excluded: the payload, and then each
-- run of data, { at, bytes }, behind zeros.
local function with_data(fields, payload, ...)
  local bytes, header = payload, 16 + 4 * #fields
  for _, run in ipairs({ ... }) do
    bytes = bytes .. ("\0"):rep(run[1] - header - #bytes) .. run[2]
  end
  return bytes
end

-- Returns a connection of two ends that have announced the structure and all abilities. `size` is
-- the longest message of the client, and `level` its support for calls in reverse direction.
local function placing(size, level)
  local conn, send = begin()
  local client = concat({ 5, 2, 4, 4096, 1, 4, size or 4096, 5, 4, level or 0 }, STRUCTURE,
    { 0xffffff03, 4, 64 })
  local server = concat({ 3, 2, 4, 4096 }, STRUCTURE, { 0xffffff02, 4, 3 })
  check("placement: client", rules(send(CLIENT, 90, PROPERTIES_FINAL, client)), "")
  check("placement: server", rules(send(SERVER, 91, PROPERTIES_FINAL, server)), "")
  return conn, send
end

-- The fields of calls and replies whose chunk lists are empty.
local function placed_call(length, ...)
  return concat({ 0, 0, 0, 0, select("#", ...) }, concat(...), { length })
end

local function placed_reply(length, ...)
  return concat({ 0, select("#", ...) }, concat(...), { length })
end

-- Two items share a segment in one message.
do
  local conn, send = placing()
  local body = call_header(7, 3, 7)
  local payload = body .. words(5) .. words(9)
  local fields = placed_call(#payload, { 44, 5, 0, 0 }, { 56, 9, 0, 8 })
  local bytes = with_data(fields, payload, { 1024, "hello" }, { 1032, "ninebytes" })
  local call = send(CLIENT, 7, CALL_PLACED, fields, bytes)
  check("placed: call", rules(call), "")
  local whole = body .. words(5) .. "hello\0\0\0" .. words(9) .. "ninebytes\0\0\0"
  check("placed: its message", call.payloads[1] and call.payloads[1].bytes, whole)
  check("placed: complete", call.reassembled_in, call.frame)
  local results = reply_header(7) .. words(0, 70)
  local data = ("x"):rep(70)
  fields = placed_reply(#results, { #results, 70, 1, 0 })
  local reply = send(SERVER, 7, REPLY_PLACED, fields, with_data(fields, results, { 2048, data }))
  check("placed: reply", rules(reply), "")
  check("placed: its data", reply.payloads[1] and reply.payloads[1].bytes,
    results .. data .. "\0\0")
  check("placed: the call's reply", call.response_in, reply.frame)
  check("placed: the reply's call", reply.request_in, call.frame)
  check("placed: no call is left", next(conn.ends[CLIENT].calls), nil)
end

-- Calls and replies in three messages, with a grant between: data goes on in the next message, and
-- a segment behind the sender's longest message has no number.
do
  local _, send = placing(3072)
  local body = call_header(7, 3, 7)
  local payload = body .. words(2500, 77)
  local data = ("data"):rep(625)
  -- Segments 0 and 1 are in the first message, 2 and 3 in the second.
  local first = { 2, 8, 40 }
  local one = send(CLIENT, 7, CALL_PLACED_MIDDLE, first,
    with_data(first, payload:sub(1, 40), { 2048, data:sub(1, 1024) }))
  check("parts with data: first", rules(one), "")
  check("parts with data: grant", rules(send(CLIENT, 0, GRANT, {})), "")
  local second = { 1, 8, 0 }
  local two = send(CLIENT, 7, CALL_PLACED_MIDDLE, second,
    with_data(second, "", { 1024, data:sub(1025) }))
  check("parts with data: second", rules(two), "")
  local last = placed_call(8, { 44, 2500, 1, 0 })
  local three = send(CLIENT, 7, CALL_PLACED, last, payload:sub(41))
  check("parts with data: last", rules(three), "")
  check("parts with data: message", three.payloads[1] and three.payloads[1].bytes,
    body .. words(2500) .. data .. words(77))
  for _, part in ipairs({ one, two, three }) do
    check("parts with data: where the call is complete", part.reassembled_in, three.frame)
  end
  -- The server's longest message is one of the default length.
  local results = reply_header(7) .. words(4000)
  first = { 1, 0, #results }
  local begun = send(SERVER, 7, REPLY_PLACED_MIDDLE, first,
    with_data(first, results, { 1024, data .. data:sub(1, 572) }))
  check("parts with data: reply begins", rules(begun), "")
  last = placed_reply(0, { #results, 4000, 0, 0 })
  local ended = send(SERVER, 7, REPLY_PLACED, last, with_data(last, "", { 1024, data:sub(1, 928) }))
  check("parts with data: reply", rules(ended), "")
  local answer = results .. data .. data:sub(1, 572) .. data:sub(1, 928)
  check("parts with data: results", ended.payloads[1] and ended.payloads[1].bytes, answer)
  check("parts with data: the reply's call", begun.request_in, one.frame)
  check("parts with data: where the reply is", begun.reassembled_in, ended.frame)
end

-- A read chunk beside a placed item, and a reply that invalidates the write chunk beside its item.
do
  local conn, send = placing()
  local body = call_header(7, 3, 7)
  local payload = body .. words(8) .. words(4)
  local lists = { 0x44, 1, 56, 0x33, 4, 0, 0, 0, 1, 1, 0x44, 100, 0, 0, 0, 0 }
  local fields = concat(lists, { 1, 44, 8, 2, 0, #payload })
  local bytes = with_data(fields, payload, { 3072, "wideword" })
  local call = send(CLIENT, 7, CALL_PLACED, fields, bytes)
  check("beside a chunk: call", rules(call), "")
  check("beside a chunk: nothing yet", #call.payloads, 0)
  local sink = { handle = 9, offset = wide(0, 0) }
  conn:read_request(SERVER, 0x33, wide(0, 0), 4, sink, event())
  local read = conn:read_response(CLIENT, function() return 0 end, "read", event())
  check("beside a chunk: message", read.payloads[1] and read.payloads[1].bytes,
    body .. words(8) .. "wideword" .. words(4) .. "read")
  local results = reply_header(7) .. words(64)
  fields = { 1, 1, 0x44, 0, 0, 0, 0, 1, #results, 64, 0, 0, #results }
  bytes = with_data(fields, results, { 1024, ("y"):rep(64) })
  local reply = send(SERVER, 7, REPLY_PLACED, fields, bytes, 0x44)
  check("beside a chunk: reply", rules(reply), "")
  check("beside a chunk: results", #reply.payloads, 1)
end

-- Each of its rules: the last step breaks it, and those before are right.
do
  local payload = call_header(7, 3, 7) .. words(64)
  local data = ("d"):rep(64)
  -- What breaks these is shown as the message that it is.
  local SHOWN = {
    [""] = true, placed_padding = true, xid = true, direction = true, invalidated = true,
    unmatched = true,
  }
  local function case(expected, ...)
    local _, send = placing()
    local steps = { ... }
    for n, step in ipairs(steps) do
      local result = send(table.unpack(step, 1, 6))
      local wanted = n == #steps and expected or ""
      check("placement: " .. expected .. ": step " .. n, rules(result), wanted)
      if n == #steps and not SHOWN[expected] then
        check("placement: " .. expected .. ": no message", #result.payloads, 0)
      end
    end
  end
  -- A call with one item, which is at a place in the message.
  local function one(item, at, bytes, length)
    local fields = placed_call(length or #payload, item)
    return { CLIENT, 7, CALL_PLACED, fields, with_data(fields, payload, { at, bytes or data }) }
  end
  local function part(messages, remaining, length, bytes)
    return { CLIENT, 7, CALL_PLACED_MIDDLE, { messages, remaining, length }, bytes }
  end
  local function last(length, bytes)
    return { CLIENT, 7, CALL_PLACED, placed_call(length), bytes }
  end
  local begun = part(2, 40, 4, payload:sub(1, 4))

  case("", one({ 44, 64, 0, 0 }, 1024))
  case("placed_position", one({ 44, 0, 0, 0 }, 1024, ""))
  case("placed_position", one({ 42, 64, 0, 0 }, 1024))
  case("placed_position", one({ 4, 64, 0, 0 }, 1024))
  case("placed_position", one({ 48, 64, 0, 0 }, 1024))
  case("segment_number", one({ 44, 64, 3, 0 }, 1024))
  case("segment_number", one({ 44, 1025, 2, 0 }, 3072, ("d"):rep(1024)))
  case("segment_offset", one({ 44, 64, 0, 4 }, 1028))
  case("segment_offset", one({ 44, 64, 0, 1024 }, 1024))
  case("not_placed", one({ 44, 65, 0, 0 }, 1024))
  case("payload_length", last(48, payload))
  case("payload_length", last(43, payload))
  case("placed_padding", one({ 44, 64, 0, 0 }, 1023, "!" .. data))
  case("placed_padding", one({ 44, 64, 0, 0 }, 1024, data .. "\0"))
  do
    local fields = placed_call(#payload, { 40, 16, 0, 0 }, { 56, 16, 0, 8 })
    local bytes = with_data(fields, payload, { 1024, data:sub(1, 24) })
    case("placed_overlap", { CLIENT, 7, CALL_PLACED, fields, bytes })
    -- The payload goes on to byte 1028.
    local long = payload .. ("\0"):rep(1028 - 16 - 40 - #payload)
    fields = placed_call(#long, { 44, 64, 0, 0 })
    case("placed_overlap", { CLIENT, 7, CALL_PLACED, fields, long .. data })
  end
  case("placed_count", part(0, 40, 4, payload:sub(1, 4)))
  case("placed_count", begun, last(40, payload:sub(5)))
  case("placed_count", begun, part(2, 36, 4, payload:sub(5, 8)))
  case("remaining", begun, part(1, 40, 4, payload:sub(5, 8)))
  case("remaining", part(1, 40, 4, payload:sub(1, 4)), last(36, payload:sub(5, 40)))
  case("part_interrupted", begun, { CLIENT, 7, CALL_INLINE, { 0, 0, 0, 0 }, payload:sub(5) })
  case("part_interrupted", { CLIENT, 7, CALL_MIDDLE, { 8 }, payload:sub(1, 36) },
    last(8, payload:sub(37)))
  case("part_interrupted", begun, { CLIENT, 8, CALL_INLINE, { 0, 0, 0, 0 }, call_header(8, 3, 0) })
  case("placed_credits", part(1000, 40, 4, payload:sub(1, 4)))
  case("inv_handle", { CLIENT, 7, CALL_PLACED, concat({ 5 }, placed_call(44)), payload })
  case("xid", { CLIENT, 8, CALL_PLACED, placed_call(44), payload })
  case("direction", { CLIENT, 7, CALL_PLACED, placed_call(24), reply_header(7) })
  case("invalidated", { CLIENT, 7, CALL_PLACED, placed_call(44), payload, 5 })
  case("unmatched", { SERVER, 7, REPLY_PLACED, placed_reply(24), reply_header(7) })
  case("form", { CLIENT, 7, CALL_PLACED_MIDDLE, { 1, 0 } })
  -- The rest of what was refused belongs to nothing, and the next call is one.
  case("", one({ 44, 64, 0, 0 }, 1024), { CLIENT, 8, CALL_PLACED, placed_call(40),
    call_header(8, 3, 0) })
  -- A bad part is answered, and ends its call.
  do
    local _, send = placing()
    send(table.unpack(begun, 1, 5))
    send(table.unpack(part(2, 36, 4, payload:sub(5, 8)), 1, 5))
    check("placement: error", rules(send(SERVER, 7, 4, { 5 })), "error_reported")
    check("placement: the rest", rules(send(table.unpack(last(36, payload:sub(9)), 1, 5))), "")
    local after = send(CLIENT, 9, CALL_PLACED, placed_call(40), call_header(9, 3, 0))
    check("placement: the next", rules(after), "")
    check("placement: is a call", #after.payloads, 1)
  end

  -- What ends have not announced.
  local function unannounced(expected, from, ...)
    local _, send = begin()
    send(CLIENT, 90, PROPERTIES_FINAL, { 0 })
    local announced = send(SERVER, 91, PROPERTIES_FINAL, from)
    check("placement: announcement", rules(announced), expected)
    for n, wrong in ipairs({ ... }) do
      local result = send(table.unpack(one({ 44, 64, 0, 0 }, 1024), 1, 5))
      check("placement: unannounced " .. n, rules(result), wrong)
    end
  end
  unannounced("", concat({ 2, 2, 4, 4096 }, STRUCTURE), "unsupported")
  unannounced("", { 1, 0xffffff02, 4, 2 }, "unsupported segment_number")
  unannounced("", { 1, 0xffffff02, 4, 1 }, "segment_number")
  unannounced("", concat({ 2, 0xffffff02, 4, 1 }, STRUCTURE), "")
  unannounced("buffer_structure", concat({ 3, 2, 4, 4100, 0xffffff02, 4, 1 }, STRUCTURE),
    "segment_number")
  unannounced("buffer_structure",
    { 1, 0xffffff01, 20, 1, 0x10000, 0x10001, 0, 1 }, "unsupported segment_number")
  unannounced("form property_value", { 1, 0xffffff01, 16, 1, 4096, 0, 1 })
  unannounced("form property_value", { 1, 0xffffff02, 8, 3, 0 })
  do
    local _, send = begin()
    send(CLIENT, 90, PROPERTIES_FINAL, { 1, 0xffffff03, 4, 0xffffffff })
    send(SERVER, 91, PROPERTIES_FINAL, { 0 })
    send(CLIENT, 7, CALL_INLINE, { 0, 0, 0, 0 }, call_header(7, 3, 0))
    local wrong = send(SERVER, 7, REPLY_PLACED, placed_reply(24), reply_header(7))
    check("placement: no replies", rules(wrong), "unsupported")
  end
  -- In reverse direction, as calls with chunks.
  for level, wrong in pairs({ [2] = "unsupported reverse", [3] = "unsupported" }) do
    local _, send = placing(4096, level)
    local result = send(SERVER, 7, CALL_PLACED, placed_call(40), call_header(7, 3, 0))
    check("placement: reverse, level " .. level, rules(result), wrong)
  end
end

-- ------------------------------------------------------------------------------------------
-- What is not known here, and extensions that have no handler.

-- Returns the state machine with tables of `change`d definitions.
local function with(change)
  local own = load_part("xdr")
  change(own)
  local tables = load_part("dialects")(own)
  return load_part("messages")(walk, tables, own, Memory, load_part("working_group")), tables
end

local HELLO, MAX = 0xffffff77, 0xffffff78

-- An extension whose numbers come from the list alone.
local function hello(own)
  own.types.hello = { kind = "struct", fields = {
    { name = "rdma_number", type = "uint32", shape = "one" },
    { name = "rdma_text", type = "opaque", shape = "array" },
  } }
  for _, role in ipairs({ "header type", "operation" }) do
    table.insert(own.codes, { role = role, number = HELLO, name = "HELLO", type = "hello" })
  end
  table.insert(own.codes, { role = "property", number = MAX, name = "MAX", type = "hello" })
end

local FIELDS = words(5, 3) .. "abc\0"

local function wg_hello(machine, index, number, rest)
  local conn = machine.connection()
  conn:send(CLIENT, words(0, 2, 8, 7, 0), event())
  conn:send(SERVER, words(0, 2, 8, 7, 0), event())
  return conn:send(index, words(9, 2, 8, number) .. rest, event()), conn
end

do
  -- A header type that nothing knows: its number, and where its bytes begin.
  local bytes = words(9, 2, 8, HELLO) .. FIELDS
  local result = wg_hello(messages, CLIENT, HELLO, FIELDS)
  check("unknown header type", rules(result), "header_type")
  check("unknown header type: its number", result.name:match("0x(%x+)"), "ffffff77")
  check("unknown header type: its bytes", result.unknown, true)
  check("unknown header type: where", messages.read(bytes, dialects[3]).length, 16)

  -- The same with a row in the list.
  local machine, tables = with(hello)
  local call = call_header(9, 3, 0)
  local known, conn = wg_hello(machine, CLIENT, HELLO, FIELDS .. call)
  check("header type of the list", rules(known), "")
  check("header type of the list: its name", known.name, "HELLO")
  check("header type of the list: its call", known.payloads[1] and known.payloads[1].bytes, call)
  local read = machine.read(words(9, 2, 8, HELLO) .. FIELDS .. call, tables[3])
  check("header type of the list: a field", read.value.rdma_hdr.rdma_fields.rdma_number, 5)
  local reply = conn:send(SERVER, words(9, 2, 8, 13, 0) .. reply_header(9), event())
  check("header type of the list: the reply", rules(reply), "")
  check("header type of the list: its reply", known.response_in, reply.frame)
  local other = wg_hello(machine, CLIENT, HELLO, FIELDS .. words(1, 2, 3))
  check("header type of the list: no call", rules(other), "")
  check("header type of the list: other bytes", other.unknown, true)
  local cut = wg_hello(machine, CLIENT, HELLO, words(5, 99))
  check("header type of the list: cut", rules(cut), "form")
end

do
  -- Operations of 2016, with the direction in the header.
  local function operation(machine, rest)
    local conn = machine.connection()
    local header = words(9, 2, 8, 5, 0, HELLO, #FIELDS)
    return conn:send(CLIENT, header .. FIELDS .. rest, event())
  end
  local call = call_header(9, 3, 0)
  local result = operation(messages, call)
  check("unknown operation", rules(result), "unknown_operation")
  check("unknown operation: its bytes", result.unknown, true)
  result = operation(with(hello), call)
  check("operation of the list", rules(result), "")
  check("operation of the list: its call", result.payloads[1] and result.payloads[1].bytes, call)
end

do
  -- Properties: the value is shown as its bytes, or by its type.
  local list = words(0, 2, 8, 7, 1, MAX, #FIELDS) .. FIELDS
  local result = messages.connection():send(CLIENT, list, event())
  check("unknown property", rules(result), "unknown_property")
  local machine = with(hello)
  check("property of the list", rules(machine.connection():send(CLIENT, list, event())), "")
end

do
  -- Tables that lack what others name, as after an extension was removed: nothing fails, and what needs
  -- it is not known.
  local lacking = { "BATCH", "batch", "PLACED", "placed", "RBSTRUCT", "RESMIN", "PLACEMENT" }
  local machine, tables = with(function(own)
    for _, definitions in ipairs({ own.constants, own.types }) do
      for name in pairs(definitions) do
        for _, part in ipairs(lacking) do
          if name:find(part, 1, true) then
            definitions[name] = nil
          end
        end
      end
    end
    table.insert(own.codes, { role = "header type", number = 1, name = "NONE", type = "none" })
    table.insert(own.codes, { role = "of a later version", number = 1, name = "N", type = "n" })
  end)
  check("lacking tables: operations", tables[2].operations[xdr.constants.ROPT_BATCH], nil)
  check("lacking tables: header types", tables[3].messages[xdr.constants.RDMA2_CALL_PLACED], nil)
  local placed_type = xdr.constants.RDMA2_CALL_PLACED
  check("lacking tables: a message", rules(wg_hello(machine, CLIENT, placed_type, FIELDS)),
    "header_type")
  for _, sample_ in ipairs(samples) do
    local good, text = pcall(function() machine.connection():send(0, sample_, event()) end)
    if not good then
      check("lacking tables: a sample", text, nil)
    end
  end
  -- No list at all.
  with(function(own) own.codes = nil end)
end

do
  -- A file that is missing or broken is named, and loading does not fail.
  local copy = os.tmpname()
  os.remove(copy)
  local interpreter = arg[-1] or "lua5.2"
  for _, change in ipairs({ "rm %s/rpcrdma/rules.lua", "echo 'x x' >%s/rpcrdma/rules.lua" }) do
    os.execute("mkdir " .. copy .. " && cp -r '" .. folder .. ".'/* " .. copy)
    os.execute(change:format(copy))
    local run = assert(io.popen(interpreter .. " " .. copy .. "/rpcrdma.lua 2>&1; echo $?"))
    local said = run:read("*a")
    run:close()
    check("a file that is missing or broken: named", said:find("rules.lua", 1, true) ~= nil, true)
    check("a file that is missing or broken: status", said:match("(%d+)%s*$"), "0")
    os.execute("rm -r " .. copy)
  end
end

-- ------------------------------------------------------------------------------------------
-- Fixed opaque data have no length in front of them.

do
  local types = {
    id = { kind = "typedef",
      of = { name = "id", type = "opaque", shape = "fixed", length = 2 } },
    fixed = { kind = "struct", fields = {
      { name = "mark", type = "opaque", shape = "fixed", length = 6 },
      { name = "ids", type = "id", shape = "array" },
      { name = "number", type = "uint32", shape = "one" },
    } },
  }
  local bytes = "fixed!\0\0" .. words(2) .. "ab\0\0cd\0\0" .. words(7)
  local read = walk.read(types, "fixed", bytes)
  check("the length of fixed opaque data", read.value.mark.length, 6)
  check("fixed opaque data in an array", read.value.ids[2].at, 16)
  check("what follows fixed opaque data", read.value.number, 7)
  check("notes about fixed opaque data", #read.notes, 0)
  check("fixed opaque data that are cut", walk.read(types, "fixed", "fixed!\0").fault.rule, "form")
  read = walk.read(types, "fixed", "fixed!\0\1" .. words(0, 7))
  check("fixed opaque data that are not filled up", read.notes[1].rule, "round_up")
end

-- ------------------------------------------------------------------------------------------
-- Whatever a peer sends, nothing fails: damaged messages of the vectors, and accesses to memory.

do
  -- The same numbers in every run and every Lua: 16807 and 2^31 - 1 (Park and Miller, 1988).
  local seed = 1
  local function random(limit)
    seed = seed * 16807 % 2147483647
    return seed % limit
  end
  local function damaged(bytes)
    for _ = 1, random(4) do
      local at = random(#bytes + 1)
      local byte = string.char(random(4) == 0 and random(256) or random(8))
      bytes = bytes:sub(1, at) .. byte .. bytes:sub(at + 2)
    end
    return random(8) == 0 and bytes:sub(1, random(#bytes + 1)) or bytes
  end
  local function anything(conn)
    local from = random(2)
    local kind = random(8)
    local handle, offset = random(3), wide(random(2), random(64) * 4)
    if kind == 0 then
      return conn:write(from, handle, offset, ("x"):rep(random(40)), event())
    elseif kind == 1 then
      local sink = { handle = 1, offset = wide(0, 0), number = 1 }
      return conn:read_request(from, handle, offset, random(40), sink, event())
    elseif kind == 2 then
      local function matches(read)
        return read.length - read.left
      end
      return conn:read_response(from, matches, ("y"):rep(random(40)), event())
    end
    local now = event()
    now.invalidate = random(16) == 0 and handle or nil
    return conn:send(from, damaged(samples[random(#samples) + 1]), now)
  end
  local good, text = true, nil
  local marked = 0
  for _ = 1, 200 do
    local conn = messages.connection()
    for _ = 1, 100 do
      local result
      good, result = pcall(anything, conn)
      if not good then
        text = text or tostring(result)
        break
      end
      marked = marked + #result.violations
    end
  end
  check("whatever a peer sends", text, nil)
  check("some of it is marked", marked > 0, true)
end

print(string.format("%s: %d vectors, %d checks, %d failures", _VERSION, vectors, checks, failures))
os.exit(failures == 0)
