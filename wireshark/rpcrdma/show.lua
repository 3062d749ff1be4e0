-- Shows messages in Wireshark's protocol tree: protocols, fields and expert items made of the
-- tables, and the walk's nodes as lines.

return function(xdr, dialects, rules, messages)
  local show = {}

  -- Numbers that are not quantities.
  local HEXADECIMAL = {
    rdma_xid = true, rdma_inv_handle = true, rdma_rpc_first_word = true, rdma_handle = true,
    rdma_offset = true, rdma_flags = true, xmsi_xid = true, xmrseg_flags = true,
  }
  local NAMED = {
    rdma_opttype = "operations", optxc_itype = "operations", xchv_which = "properties",
    rdma_htype = "messages", rdma_err = "errors", rdma_which = "properties",
  }
  local LEAVES = { uint32 = true, uint64 = true, bool = true, opaque = true }

  -- Numbers that have names: those of operations, characteristics, message types and errors, and
  -- the values of a property.
  local function names(dialect, name)
    local entries = NAMED[name] and dialect[NAMED[name]]
    for _, property in pairs(dialect.properties) do
      if property.type == name then
        entries = property.values
      end
    end
    local texts
    for number, entry in pairs(entries or {}) do
      texts = texts or {}
      texts[number] = type(entry) == "table" and entry.name or entry
    end
    return texts
  end

  local function leaf(dialect, name, type)
    local abbreviation = dialect.protocol .. "." .. name
    local base_ = HEXADECIMAL[name] and base.HEX or base.DEC
    if type == "uint32" then
      return ProtoField.uint32(abbreviation, name, base_, names(dialect, name))
    elseif type == "uint64" then
      return ProtoField.uint64(abbreviation, name, base_)
    elseif type == "bool" then
      return ProtoField.uint32(abbreviation, name, base.DEC, { [0] = "FALSE", [1] = "TRUE" })
    elseif type == "opaque" then
      return ProtoField.bytes(abbreviation, name)
    elseif (xdr.types[type] or {}).kind == "enum" then
      return ProtoField.uint32(abbreviation, name, base.DEC, xdr.types[type].names)
    end
    return ProtoField.none(abbreviation, name)
  end

  -- Visits every field of a type and of the types in it: `visit(name, type)`.
  local function each_field(root, visit)
    local seen = {}
    local of_type
    local function of_field(field)
      local type = field.type
      -- A typedef's own name is shown only where opaque data holds it.
      while xdr.types[type] and xdr.types[type].kind == "typedef" do
        type = xdr.types[type].of.type
      end
      visit(field.name, type)
      of_type(type)
    end
    function of_type(name)
      local definition = xdr.types[name]
      if seen[name] or not definition then
        return
      end
      seen[name] = true
      for _, field in ipairs(definition.fields or {}) do
        of_field(field)
      end
      if definition.kind == "union" then
        of_field(definition.tag)
        for _, arm in pairs(definition.arms) do
          if arm then
            of_field(arm)
          end
        end
      end
    end
    of_type(root)
  end

  local GENERATED = {
    { "request_in", "framenum", "The call is in frame" },
    { "response_in", "framenum", "The reply is in frame" },
    { "time", "relative_time", "Time from the call to the reply" },
    { "reassembled_in", "framenum", "The RPC message is complete in frame" },
    { "call_in", "framenum", "The memory was offered in frame" },
    { "sent", "uint32", "Messages that the sender has sent, with this one" },
    { "peer_sent", "uint32", "Messages that the peer has sent so far" },
    { "peer_may_send", "uint32", "Messages that the peer may still send" },
    { "unknown", "bytes", "Bytes that are not known here" },
  }

  -- Returns a dialect's fields. A name can stand for other values in another dialect of the same
  -- protocol, or for another type in an extension: then there are two fields of that name, which one
  -- filter finds.
  local function protocol(dialect, list)
    local self = { fields = {}, dialect = dialect }
    local function add(name, type)
      local key = name .. " " .. type
      if not self.fields[key] then
        self.fields[key] = leaf(dialect, name, type)
        table.insert(list, self.fields[key])
      end
    end
    each_field(dialect.root, add)
    for _, message in pairs(dialect.messages) do
      if message.root then
        each_field(message.root, add)
      end
    end
    for _, entries in ipairs({ dialect.operations, dialect.properties }) do
      for _, entry in pairs(entries) do
        each_field(entry.type, add)
        local type = entry.type
        while xdr.types[type] and xdr.types[type].kind == "typedef" do
          type = xdr.types[type].of.type
        end
        add(entry.type, type)
        each_field(type, add)
      end
    end
    return self
  end

  local protocols, shared = {}, {}
  for _, dialect in ipairs(dialects) do
    local common = shared[dialect.protocol]
    if not common then
      common = { proto = Proto(dialect.protocol, "RPC-over-RDMA Version " .. dialect.version) }
      common.list, common.generated, common.experts, common.all = {}, {}, {}, {}
      shared[dialect.protocol] = common
      for _, row in ipairs(GENERATED) do
        local name, kind, text = row[1], row[2], row[3]
        common.generated[name] = ProtoField[kind](dialect.protocol .. "." .. name, text)
        table.insert(common.list, common.generated[name])
      end
      for _, row in ipairs(rules) do
        local name, severity, group, text = row[1], row[2], row[3], row[4]
        local expert_ = ProtoExpert.new(dialect.protocol .. ".rule." .. name, text,
          expert.group[group], expert.severity[severity])
        common.experts[name] = { expert = expert_, text = text }
        table.insert(common.all, expert_)
      end
    end
    local self = protocol(dialect, common.list)
    self.proto, self.experts, self.generated = common.proto, common.experts, common.generated
    protocols[dialect] = self
  end
  for _, common in pairs(shared) do
    common.proto.fields = common.list
    common.proto.experts = common.all
  end

  -- Returns a dialect's protocol.
  function show.protocol(dialect)
    return protocols[dialect].proto
  end

  local function complain(self, result, item, items)
    for _, violation in ipairs(result.violations) do
      local entry = self.experts[violation.rule]
      local text = entry.text .. (violation.text and ": " .. violation.text or "")
      local at = violation.node and items and items[violation.node] or item
      at:add_proto_expert_info(entry.expert, text)
    end
  end

  local function add_generated(self, item, name, value)
    if value then
      item:add(self.generated[name], value):set_generated()
    end
  end

  local function link(self, result, item)
    for _, name in ipairs({ "request_in", "response_in", "call_in" }) do
      add_generated(self, item, name, result[name])
    end
    if result.reassembled_in ~= result.frame then
      add_generated(self, item, "reassembled_in", result.reassembled_in)
    end
    if result.time then
      local nanoseconds = math.floor(result.time * 1e9 + 0.5)
      local seconds = math.floor(nanoseconds / 1e9)
      add_generated(self, item, "time", NSTime.new(seconds, nanoseconds - seconds * 1e9))
    end
    for _, name in ipairs({ "sent", "peer_sent", "peer_may_send" }) do
      add_generated(self, item, name, result.flow and result.flow[name])
    end
  end

  local rpc = Dissector.get("rpc")
  local unknown = Dissector.get("data")

  -- Dissects the RPC messages that an event completed.
  local function dissect_payloads(result, bytes, tvb, pinfo, tree)
    for _, payload in ipairs(result.payloads) do
      local length = #payload.bytes
      local inner
      -- Bytes that follow the header as they are keep their place in the frame.
      if length > 0 and bytes and bytes:sub(-length) == payload.bytes then
        inner = tvb(#bytes - length):tvb()
      elseif length > 0 then
        inner = ByteArray.new(payload.bytes, true):tvb(payload.label)
      end
      if inner and rpc:call(inner, pinfo, tree) == 0 then
        unknown:call(inner, pinfo, tree)
      end
    end
  end

  local function columns(self, result, pinfo, text)
    if #result.payloads == 0 then
      pinfo.cols.protocol = "RPCoRDMA" .. self.dialect.version
      -- The space keeps apart what several FPDUs of one frame say.
      pinfo.cols.info = text .. " "
    end
  end

  -- Shows a message. `bytes` are those of `tvb`.
  function show.message(result, bytes, tvb, pinfo, tree)
    local self = protocols[result.dialect]
    local read = messages.read(bytes, result.dialect)
    local top = tree:add(self.proto, tvb(0, read.length))
    local parents, items = { [0] = top }, {}
    for n, node in ipairs(read.nodes) do
      local parent, item = parents[node.depth], nil
      local field = self.fields[node.name .. " " .. node.type]
      local kind = (xdr.types[node.type] or {}).kind
      if field then
        if node.data then
          item = parent:add(field, tvb(node.data.at, node.data.length))
        elseif node.number then
          item = parent:add(field, tvb(node.at, 4))
        elseif node.wide then
          item = parent:add(field, tvb(node.at, 8))
        elseif not LEAVES[node.type] and kind ~= "enum" then
          item = parent:add(field, tvb(node.at, node.length))
        end
      end
      if item and node.name == "rdma_credit" and result.flow then
        item:append_text(string.format(" = messages received + credits: the peer has sent %d, "
          .. "and may send %d more", result.flow.peer_sent, result.flow.peer_may_send))
      end
      parents[node.depth + 1] = item or parent
      items[n] = item
    end
    local text = string.format("%s, XID 0x%08x", result.name or "header", read.value.rdma_xid or 0)
    top:set_text(result.dialect.title .. ": " .. text)
    if result.incomplete then
      top:append_text(", data is missing in the capture")
    end
    local left = #bytes - read.length
    if left > 0 and (read.fault or result.unknown) then
      local item = top:add(self.generated.unknown, tvb(read.length, left))
      item:append_text(string.format(" (%d bytes)", left))
    end
    complain(self, result, top, items)
    link(self, result, top)
    columns(self, result, pinfo, text)
    dissect_payloads(result, bytes, tvb, pinfo, tree)
  end

  -- Shows an RDMA Read or Write.
  function show.access(result, dialect, tvb, pinfo, tree)
    local self = protocols[dialect]
    local top = tvb and tree:add(self.proto, tvb()) or tree:add(self.proto)
    local text = result.about
    if result.xid then
      text = string.format("%s, XID 0x%08x", text, result.xid)
    end
    top:append_text(": " .. text)
    complain(self, result, top)
    link(self, result, top)
    columns(self, result, pinfo, text)
    dissect_payloads(result, nil, tvb, pinfo, tree)
  end

  -- Shows what a segment or packet was on the first pass.
  function show.entry(entry, tvb, pinfo, tree)
    local conn = entry.conn
    if entry.access then
      show.access(entry.access, conn.dialect, tvb, pinfo, tree)
    elseif entry.whole then
      local whole = ByteArray.new(entry.whole, true):tvb("Send")
      show.message(entry.result, entry.whole, whole, pinfo, tree)
    elseif tvb then
      show.message(entry.result, tvb:raw(), tvb, pinfo, tree)
    else
      -- A Send of no bytes.
      show.access(entry.result, entry.result.dialect, nil, pinfo, tree)
    end
  end

  return show
end
