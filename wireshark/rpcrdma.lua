-- A Wireshark dissector for RPC-over-RDMA: version 1 (RFC 8166), version 2 of 2016
-- (draft-cel-nfsv4-rpcrdma-version-two-01) with its extensions, and version 2 of the NFSv4 working
-- group (draft-ietf-nfsv4-rpcrdma-version-two-07). README.md says how to use it.
--
-- It takes what stock Wireshark decodes of iWARP and InfiniBand, before Wireshark's own dissector
-- of version 1, and gives whole RPC messages to Wireshark's dissectors of RPC and NFS.

local folder = debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or ""

-- Without one of its files nothing is registered, and Wireshark shows all else as ever.
local NAMES = {
  "xdr", "walk", "rules", "dialects", "memory", "messages", "working_group", "show", "iwarp",
  "infiniband",
}
local parts, problems = {}, {}
for _, name in ipairs(NAMES) do
  -- Wireshark's own loadfile() raises an error if there is no such file.
  local good, part, problem = pcall(loadfile, folder .. "rpcrdma/" .. name .. ".lua")
  parts[name] = good and part or nil
  if not parts[name] then
    table.insert(problems, name .. ".lua: " .. tostring(good and problem or part))
  end
end

local function load_part(name)
  return parts[name]()
end

local function register()
  local xdr = load_part("xdr")
  local walk = load_part("walk")
  local rules = load_part("rules")
  local dialects = load_part("dialects")(xdr)
  local Memory = load_part("memory")(walk)
  local messages = load_part("messages")(walk, dialects, xdr, Memory,
    load_part("working_group"))
  local show = load_part("show")(xdr, dialects, rules, messages)

  -- What is known of the capture. `entries` has what each DDP segment or packet was on the first
  -- pass, by frame and number in it: later passes come in any order.
  local state = { entries = {} }

  local iwarp = load_part("iwarp")(messages, show, walk, state)
  local infiniband = load_part("infiniband")(messages, show, walk, state)

  -- This protocol has the heuristics and the set-up; it shows nothing itself.
  local carrier = Proto("rpcrdma_carrier", "RPC-over-RDMA on iWARP and InfiniBand")

  local function forget()
    state.entries = {}
    -- iWARP: connections by the number of TCP's.
    state.connections = {}
    -- InfiniBand: directions by addresses and queue pair, and those whose other direction is unknown.
    state.directions, state.unpaired = {}, {}
    -- Numbers that stand for ports of these connections: beyond those of queue pairs.
    state.ports = 16777216
  end

  forget()
  -- Called for each file that Wireshark opens.
  carrier.init = forget

  function carrier.dissector(_, pinfo, tree)
    iwarp.setup(pinfo)
    iwarp.finish(pinfo, tree)
  end

  carrier:register_heuristic("iwarp_ddp_rdmap", iwarp.dissect)
  carrier:register_heuristic("infiniband.payload", infiniband.dissect)
  register_postdissector(carrier)
end

if #problems == 0 then
  local good, problem = pcall(register)
  if not good then
    table.insert(problems, tostring(problem))
  end
end
if #problems > 0 then
  io.stderr:write("rpcrdma.lua: RPC-over-RDMA is not shown: " .. table.concat(problems, "; ") .. "\n")
end
