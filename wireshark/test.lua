-- Tests of what the dissector does without Wireshark: `lua5.2 wireshark/test.lua`, and the same
-- with Lua 5.4, which later Wiresharks have. testing/wire-check tests the rest, with tshark.

local folder = arg[0]:match("^(.*[/\\])") or ""

local function load_part(name)
  return dofile(folder .. "rpcrdma/" .. name .. ".lua")
end

local xdr = load_part("xdr")
local walk = load_part("walk")
local dialects = load_part("dialects")(xdr.constants)
local Memory = load_part("memory")(walk)
local messages = load_part("messages")(walk, dialects, xdr, Memory)

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

local BEYOND_XDR = { short = true, version = true, retired = true }

-- Whole messages, and operations in one.
local samples = {}

local function sample(type, bytes)
  if type:find("_xprt_hdr", 1, true) then
    table.insert(samples, bytes)
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
      and (payload == "true" or read.length == #bytes)
    local name = path:match("[^/\\]*$") .. " " .. count
    if row:find('"accept": true', 1, true) then
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

local function rules(result)
  local names = {}
  for _, violation in ipairs(result.violations) do
    table.insert(names, violation.rule)
  end
  return table.concat(names, " ")
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
