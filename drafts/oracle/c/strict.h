/*
 * Included before what rpcgen made. The library's own functions take any number for an enumeration,
 * where RFC 4506 (section 4.3) has an error, and take memory for as many elements as a count says
 * before they look whether the elements are there, which a damaged count of 2^28 turns into seconds.
 * Everything else is the library's.
 */
#include <rpc/rpc.h>

bool_t oracle_enum(XDR *xdrs, enum_t *value, const char *function);
bool_t oracle_bytes(XDR *xdrs, char **bytes, u_int *len, u_int max);
bool_t oracle_array(XDR *xdrs, char **elements, u_int *count, u_int max, u_int size, xdrproc_t xdr);

#define xdr_enum(xdrs, value) oracle_enum(xdrs, value, __func__)
#define xdr_bytes oracle_bytes
#define xdr_array oracle_array
