-- The versions and dialects of RPC-over-RDMA: what a header's types are called, and what they mean.
--
-- A new dialect is an XDR file in drafts/xdr (from which xdr.lua is made) and one more table here.
-- The fields of the table:
--
--   version      the number in the second word
--   protocol     the prefix of its fields
--   title        the name of its protocol
--   root         the XDR type of its header
--   least        bytes that every header but an error has, 0 if the document sets no minimum
--   threshold    the default inline threshold, bytes
--   messages     for each number of `rdma_proc`, the path to the chunk lists (`chunks`), whether an
--                RPC message follows (`inline`), or else `error`, `optional` or `retired`
--   operations   for each number of `rdma_opttype`: the XDR type and `role`, its handler in
--                messages.lua
--   properties   for each characteristic: the XDR type, and `role` if the dissector needs its value

return function(constants)
  local C = constants

  local version_one = {
    version = 1,
    protocol = "rpcrdma1",
    title = "RPC-over-RDMA Version 1",
    root = "rpcrdma1_xprt_hdr",
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

  return { version_one, version_two }
end
