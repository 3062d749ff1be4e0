-- The versions and dialects of RPC-over-RDMA: what a header's types are called, and what they mean.
--
-- A new dialect is an XDR file in drafts/xdr, which FILES in drafts/oracle/src/list.rs lists
-- (xdr.lua is made from these), and one more table here. If it shares the version number of another
-- dialect, `dialect_of` in messages.lua has to tell the two apart. The fields of the table:
--
--   version      the number in the second word
--   protocol     the prefix of its fields
--   title        the name of its protocol
--   root         the XDR type of its header
--   body, type   the field of the root that depends on the message type, and the type's field
--   least        bytes that every header but an error has, 0 if the document sets no minimum
--   threshold    the default inline threshold, bytes
--   credits      what a credit is for: "calls" or "messages"
--   messages     for each message type, the path to the chunk lists (`chunks`), whether an RPC
--                message follows (`inline`), or else `error`, `optional` or `retired`
--   operations   for each number of `rdma_opttype`: the XDR type and `role`, its handler in
--                messages.lua
--   properties   for each characteristic: the XDR type, and `role` if the dissector needs its value
--
-- Version 2 of the working group has its handlers in working_group.lua (`working_group`). Its
-- message types have the field of their content (`arm`), their `handler`, their `direction` if they
-- have one, whether they are or can be a part of a message (`part`), and whether others follow
-- (`more`). Those of an extension have their own `root`, and those with data that Sends place are
-- `placed`. The `role` of a property is the field of an end that has its value, and some have
-- `values`; the length of a value can vary if it is `variable`. `errors` are the codes of errors.
--
-- Numbers of extensions need no row: `xdr.codes` has them with their types. A row gives one a handler.

return function(xdr)
  -- A constant that xdr.lua lacks is a number that no message has, so that its row is never used.
  local lacking = 0
  local C = setmetatable(xdr.constants, { __index = function(constants, name)
    lacking = lacking - 1
    rawset(constants, name, lacking)
    return lacking
  end })

  local version_one = {
    version = 1,
    protocol = "rpcrdma1",
    title = "RPC-over-RDMA Version 1",
    root = "rpcrdma1_xprt_hdr",
    body = "rdma_body",
    type = "rdma_proc",
    credits = "calls",
    least = 28, -- RFC 8166, section 4.5
    threshold = 1024, -- RFC 8166, section 3.3.2
    messages = {
      [C.RDMA_MSG] = { name = "RDMA_MSG", chunks = "rdma_chunks", inline = true },
      [C.RDMA_NOMSG] = { name = "RDMA_NOMSG", chunks = "rdma_chunks_only" },
      [C.RDMA_MSGP] = { name = "RDMA_MSGP", retired = true },
      [C.RDMA_DONE] = { name = "RDMA_DONE", retired = true },
      [C.RDMA_ERROR] = { name = "RDMA_ERROR", error = true },
    },
    operations = {},
    properties = {},
  }

  local version_two = {
    version = 2,
    protocol = "rpcrdma2",
    title = "RPC-over-RDMA Version 2 (2016)",
    root = "rpcrdma2_xprt_hdr",
    body = "rdma_body",
    type = "rdma_proc",
    credits = "calls",
    least = 28,
    threshold = 4096, -- version-two-01, section 3.3
    messages = {
      [C.RDMA2_MSG] = { name = "RDMA2_MSG", chunks = "rdma_chunks", inline = true },
      [C.RDMA2_NOMSG] = { name = "RDMA2_NOMSG", chunks = "rdma_chunks_only" },
      [C.RDMA2_ERROR] = { name = "RDMA2_ERROR", error = true },
      [C.RDMA2_OPTIONAL] = { name = "RDMA2_OPTIONAL", optional = true },
    },
    operations = {
      -- draft-dnoveck-nfsv4-rpcrdma-xcharext-02
      [C.ROPT_INITXCH] = { name = "ROPT_INITXCH", type = "optinfo_initxch", role = "initxch" },
      [C.ROPT_REQXCH] = { name = "ROPT_REQXCH", type = "optinfo_reqxch" },
      [C.ROPT_RESPXCH] = { name = "ROPT_RESPXCH", type = "optinfo_respxch" },
      [C.ROPT_UPDXCH] = { name = "ROPT_UPDXCH", type = "optinfo_updxch", role = "updxch" },
      -- draft-dnoveck-nfsv4-rpcrdma-rtrext-00
      [C.ROPT_XMTREQ] = {
        name = "ROPT_XMTREQ", type = "optxmt_req", role = "lead", needs = C.RTRS_XREQ,
        direction = C.RDMA2_CALL,
        items = "optxrq_ddp", returns = "optxrq_rsd", count = "optxrq_count",
        payload = "optxrq_pslen",
      },
      [C.ROPT_XMTRESP] = {
        name = "ROPT_XMTRESP", type = "optxmt_resp", role = "lead", needs = C.RTRS_XRESP,
        direction = C.RDMA2_REPLY,
        items = "optxrs_ddp", count = "optxrs_count", payload = "optxrs_pslen",
      },
      [C.ROPT_XMTCONT] = {
        name = "ROPT_XMTCONT", type = "optxmt_cont", role = "continuation", needs = C.RTRS_XCONT,
      },
      [C.ROPT_XMTERR] = { name = "ROPT_XMTERR", type = "optxmt_err", role = "report" },
      -- examples/batch
      [C.ROPT_BATCH] = { name = "ROPT_BATCH", type = "optxmt_batch", role = "batch" },
    },
    properties = {
      [C.XCHAR_RBSIZ] = { name = "XCHAR_RBSIZ", type = "xchrbsiz", role = "size" },
      [C.XCHAR_REQREMINV] = {
        name = "XCHAR_REQREMINV", type = "xchrreqrem", role = "invalidation",
      },
      [C.XCHAR_BRS] = { name = "XCHAR_BRS", type = "xchrbrs" },
      [C.XCHAR_RTRSUPP] = { name = "XCHAR_RTRSUPP", type = "xchrrtrs", role = "support" },
      [C.XCHAR_RBSTRUCT] = { name = "XCHAR_RBSTRUCT", type = "xchrrbs", role = "structure" },
      [C.XCHAR_REQRXLIM] = { name = "XCHAR_REQRXLIM", type = "xchrqrxl" },
      [C.XCHAR_RESPSXLIM] = { name = "XCHAR_RESPSXLIM", type = "xchrssxl" },
      [C.XCHAR_BATCHMAX] = { name = "XCHAR_BATCHMAX", type = "xchrbatchmax", role = "batch" },
    },
  }

  local CALL, REPLY = C.RDMA2_CALL, C.RDMA2_REPLY

  -- draft-ietf-nfsv4-rpcrdma-version-two-07. Names in the XDR file begin with RDMA2WG, so that it
  -- can stand beside the one of 2016; the names shown are those of the draft.
  local working_group = {
    version = 2,
    protocol = "rpcrdma2",
    title = "RPC-over-RDMA Version 2 (NFSv4 working group)",
    root = "rpcrdma2wg_msg",
    body = "rdma_hdr",
    type = "rdma_htype",
    credits = "messages",
    working_group = true,
    least = 16, -- section 6.2.1
    threshold = 4096, -- section 4.2.2
    messages = {
      [C.RDMA2WG_ERROR] = {
        name = "RDMA2_ERROR", arm = "rdma_error", handler = "error", error = true,
      },
      [C.RDMA2WG_GRANT] = {
        name = "RDMA2_GRANT", arm = "rdma_grant", handler = "grant", grant = true,
      },
      [C.RDMA2WG_CONNPROP_MIDDLE] = {
        name = "RDMA2_CONNPROP_MIDDLE", arm = "rdma_connprop_middle", handler = "properties",
        properties = true, more = true,
      },
      [C.RDMA2WG_CONNPROP_FINAL] = {
        name = "RDMA2_CONNPROP_FINAL", arm = "rdma_connprop_final", handler = "properties",
        properties = true,
      },
      [C.RDMA2WG_CALL_EXTERNAL] = {
        name = "RDMA2_CALL_EXTERNAL", arm = "rdma_call_external", handler = "call",
        direction = CALL,
      },
      [C.RDMA2WG_CALL_MIDDLE] = {
        name = "RDMA2_CALL_MIDDLE", arm = "rdma_call_middle", handler = "call",
        direction = CALL, inline = true, part = true, more = true,
      },
      [C.RDMA2WG_CALL_INLINE] = {
        name = "RDMA2_CALL_INLINE", arm = "rdma_call_inline", handler = "call",
        direction = CALL, inline = true, part = true,
      },
      [C.RDMA2WG_REPLY_EXTERNAL] = {
        name = "RDMA2_REPLY_EXTERNAL", arm = "rdma_reply_external", handler = "reply",
        direction = REPLY,
      },
      [C.RDMA2WG_REPLY_MIDDLE] = {
        name = "RDMA2_REPLY_MIDDLE", arm = "rdma_reply_middle", handler = "reply",
        direction = REPLY, inline = true, part = true, more = true,
      },
      [C.RDMA2WG_REPLY_INLINE] = {
        name = "RDMA2_REPLY_INLINE", arm = "rdma_reply_inline", handler = "reply",
        direction = REPLY, inline = true, part = true,
      },
      -- ext-wg-ddp
      [C.RDMA2_CALL_PLACED_MIDDLE] = {
        name = "RDMA2_CALL_PLACED_MIDDLE", root = "rpcrdma2_placed_msg",
        arm = "rdma_call_placed_middle", handler = "placed",
        direction = CALL, inline = true, placed = true, more = true,
      },
      [C.RDMA2_CALL_PLACED] = {
        name = "RDMA2_CALL_PLACED", root = "rpcrdma2_placed_msg",
        arm = "rdma_call_placed", handler = "placed",
        direction = CALL, inline = true, placed = true,
      },
      [C.RDMA2_REPLY_PLACED_MIDDLE] = {
        name = "RDMA2_REPLY_PLACED_MIDDLE", root = "rpcrdma2_placed_msg",
        arm = "rdma_reply_placed_middle", handler = "placed",
        direction = REPLY, inline = true, placed = true, more = true,
      },
      [C.RDMA2_REPLY_PLACED] = {
        name = "RDMA2_REPLY_PLACED", root = "rpcrdma2_placed_msg",
        arm = "rdma_reply_placed", handler = "placed",
        direction = REPLY, inline = true, placed = true,
      },
    },
    errors = {
      [C.RDMA2WG_ERR_VERS] = "RDMA2_ERR_VERS",
      [C.RDMA2WG_ERR_BAD_XDR] = "RDMA2_ERR_BAD_XDR",
      [C.RDMA2WG_ERR_BAD_PROPVAL] = "RDMA2_ERR_BAD_PROPVAL",
      [C.RDMA2WG_ERR_INVAL_HTYPE] = "RDMA2_ERR_INVAL_HTYPE",
      [C.RDMA2WG_ERR_INVAL_CONT] = "RDMA2_ERR_INVAL_CONT",
      [C.RDMA2WG_ERR_READ_CHUNKS] = "RDMA2_ERR_READ_CHUNKS",
      [C.RDMA2WG_ERR_WRITE_CHUNKS] = "RDMA2_ERR_WRITE_CHUNKS",
      [C.RDMA2WG_ERR_SEGMENTS] = "RDMA2_ERR_SEGMENTS",
      [C.RDMA2WG_ERR_WRITE_RESOURCE] = "RDMA2_ERR_WRITE_RESOURCE",
      [C.RDMA2WG_ERR_REPLY_RESOURCE] = "RDMA2_ERR_REPLY_RESOURCE",
      [C.RDMA2WG_ERR_VERS_MISMATCH] = "RDMA2_ERR_VERS_MISMATCH",
      [C.RDMA2WG_ERR_SYSTEM] = "RDMA2_ERR_SYSTEM",
    },
    operations = {},
    properties = {
      [C.RDMA2WG_PROPID_SBSIZ] = {
        name = "RDMA2_PROPID_SBSIZ", type = "rpcrdma2wg_prop_sbsiz", role = "send_size",
      },
      [C.RDMA2WG_PROPID_RBSIZ] = {
        name = "RDMA2_PROPID_RBSIZ", type = "rpcrdma2wg_prop_rbsiz", role = "size",
      },
      [C.RDMA2WG_PROPID_RSSIZ] = {
        name = "RDMA2_PROPID_RSSIZ", type = "rpcrdma2wg_prop_rssiz", role = "segment_size",
      },
      [C.RDMA2WG_PROPID_RCSIZ] = {
        name = "RDMA2_PROPID_RCSIZ", type = "rpcrdma2wg_prop_rcsiz", role = "segment_count",
      },
      [C.RDMA2WG_PROPID_BRS] = {
        name = "RDMA2_PROPID_BRS", type = "rpcrdma2wg_prop_brs", role = "reverse",
        values = {
          [C.RDMA2WG_RVRSDIR_NONE] = "RDMA2_RVRSDIR_NONE",
          [C.RDMA2WG_RVRSDIR_SIMPLE] = "RDMA2_RVRSDIR_SIMPLE",
          [C.RDMA2WG_RVRSDIR_CONT] = "RDMA2_RVRSDIR_CONT",
          [C.RDMA2WG_RVRSDIR_GENL] = "RDMA2_RVRSDIR_GENL",
        },
      },
      [C.RDMA2WG_PROPID_HOSTAUTH] = {
        name = "RDMA2_PROPID_HOSTAUTH", type = "rpcrdma2wg_prop_hostauth", variable = true,
      },
      -- ext-wg-ddp
      [C.RDMA2_PROPID_RBSTRUCT] = {
        name = "RDMA2_PROPID_RBSTRUCT", type = "rpcrdma2_prop_rbstruct", role = "structure",
        variable = true,
      },
      [C.RDMA2_PROPID_PLACEMENT] = {
        name = "RDMA2_PROPID_PLACEMENT", type = "rpcrdma2_prop_placement", role = "placement",
      },
      [C.RDMA2_PROPID_RESMIN] = {
        name = "RDMA2_PROPID_RESMIN", type = "rpcrdma2_prop_resmin", role = "smallest_result",
      },
    },
  }

  -- Defines the XDR type of a whole message with this header type. Returns its name.
  local function whole(code)
    local fields, tag = {}, { name = working_group.type, type = "uint32", shape = "one" }
    local root, header = code.name:lower() .. "_msg", code.name:lower() .. "_hdr"
    for n, field in ipairs(xdr.types[working_group.root].fields) do
      fields[n] = field
    end
    fields[#fields] = { name = working_group.body, type = header, shape = "one" }
    xdr.types[root] = { kind = "struct", fields = fields }
    xdr.types[header] = { kind = "union", tag = tag, arms = {
      [code.number] = { name = "rdma_fields", type = code.type, shape = "one" },
    } }
    return root
  end

  -- Extensions without a row above: their fields are shown, and an RPC message behind them.
  local tables = {
    operation = version_two.operations,
    characteristic = version_two.properties,
    ["header type"] = working_group.messages,
    property = working_group.properties,
  }
  for _, code in ipairs(xdr.codes or {}) do
    local entries = tables[code.role]
    if entries and not entries[code.number] and xdr.types[code.type] then
      local entry = { name = code.name, type = code.type, variable = true }
      if code.role == "operation" then
        entry.role = "extension"
      elseif code.role == "header type" then
        entry.root, entry.arm = whole(code), "rdma_fields"
        entry.handler, entry.inline, entry.extension = "extension", true, true
      end
      entries[code.number] = entry
    end
  end

  -- A row whose constant or type xdr.lua lacks is none: its number is shown as one that is not known.
  local dialects = { version_one, version_two, working_group }
  for _, dialect in ipairs(dialects) do
    for _, entries in ipairs({
      dialect.messages, dialect.operations, dialect.properties, dialect.errors or {},
    }) do
      for number, entry in pairs(entries) do
        local type_ = type(entry) == "table" and (entry.root or entry.type)
        if number < 0 or type_ and not xdr.types[type_] then
          entries[number] = nil
        end
      end
    end
  end
  return dialects
end
