/* What the generated parts of the program and main.c know of each other. */
#ifndef ORACLE_H
#define ORACLE_H

#include <stddef.h>
#include <rpc/rpc.h>

/* JSON, written to the answer that is being made. */
void put_text(const char *text);
void put_number(u_int number);
void put_wide(u_quad_t number);
void put_hex(const char *bytes, u_int len);

/* Types by number, which is their place in the XDR files. */
struct type {
	const char *name;
	size_t size;
	xdrproc_t xdr;
	void (*show)(const void *value);
};
extern const struct type types[];

/* Values of enumerations, by the function that rpcgen makes for one. */
struct value {
	const char *function;
	int value;
};
extern const struct value values[];

#endif
