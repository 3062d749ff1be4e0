/*
 * Decodes, shows and encodes again what it is sent. In words of this machine, a request is a type's
 * number, a length, and as many bytes; an answer is 1 or 0 for accepted or not, the bytes that were
 * used, a length and the value encoded again, a length and the value as JSON. A type number of all ones
 * asks for the answers that are still held back. First come the number of types and their names, each
 * with a zero byte behind it.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

enum { LONGEST = 1 << 20 };

static char *json;
static size_t json_len, json_room;

static void put(const char *text, size_t len)
{
	if (json_room - json_len < len) {
		json_room = 2 * (json_room + len);
		json = realloc(json, json_room);
		if (!json)
			abort();
	}
	memcpy(json + json_len, text, len);
	json_len += len;
}

void put_text(const char *text)
{
	put(text, strlen(text));
}

void put_number(u_int number)
{
	char text[16];
	put(text, (size_t)snprintf(text, sizeof text, "%u", number));
}

/* In quotes: readers of JSON may take numbers for floating point ones, which lose digits. */
void put_wide(u_quad_t number)
{
	char text[32];
	put(text, (size_t)snprintf(text, sizeof text, "\"%" PRIu64 "\"", (uint64_t)number));
}

void put_hex(const char *bytes, u_int len)
{
	char text[4];
	put_text("\"");
	for (u_int i = 0; i < len; i++) {
		snprintf(text, sizeof text, "%02x", (unsigned char)bytes[i]);
		put(text, 2);
	}
	put_text("\"");
}

bool_t oracle_enum(XDR *xdrs, enum_t *value, const char *function)
{
	if (!(xdr_enum)(xdrs, value))
		return FALSE;
	if (xdrs->x_op == XDR_FREE)
		return TRUE;
	for (const struct value *known = values; known->function; known++)
		if (known->value == *value && strcmp(known->function, function) == 0)
			return TRUE;
	return FALSE;
}

/* Whether as many elements, of so many bytes at least, can follow a count that comes next. */
static bool_t can_follow(XDR *xdrs, u_int bytes_each)
{
	u_int count, at;

	if (xdrs->x_op != XDR_DECODE)
		return TRUE;
	at = xdr_getpos(xdrs);
	if (!xdr_u_int(xdrs, &count))
		return FALSE;
	bool_t can = count <= xdrs->x_handy / bytes_each;
	return xdr_setpos(xdrs, at) && can;
}

bool_t oracle_bytes(XDR *xdrs, char **bytes, u_int *len, u_int max)
{
	return can_follow(xdrs, 1) && (xdr_bytes)(xdrs, bytes, len, max);
}

bool_t oracle_array(XDR *xdrs, char **elements, u_int *count, u_int max, u_int size, xdrproc_t xdr)
{
	return can_follow(xdrs, BYTES_PER_XDR_UNIT) &&
	       (xdr_array)(xdrs, elements, count, max, size, xdr);
}

static int get(void *to, size_t len)
{
	return fread(to, 1, len, stdin) == len;
}

static void say(const void *from, size_t len)
{
	if (fwrite(from, 1, len, stdout) != len)
		exit(1);
}

static void say_word(uint32_t word)
{
	say(&word, sizeof word);
}

static void answer(const struct type *type, char *bytes, uint32_t len)
{
	static char again[LONGEST];
	void *value = calloc(1, type->size);
	uint32_t used, again_len = 0;
	bool_t accepted;
	XDR xdrs;

	if (!value)
		abort();
	xdrmem_create(&xdrs, bytes, len, XDR_DECODE);
	accepted = type->xdr(&xdrs, value);
	used = xdr_getpos(&xdrs);
	json_len = 0;
	if (accepted) {
		xdrmem_create(&xdrs, again, sizeof again, XDR_ENCODE);
		if (!type->xdr(&xdrs, value)) {
			fprintf(stderr, "a %s was decoded and cannot be encoded\n", type->name);
			exit(1);
		}
		again_len = xdr_getpos(&xdrs);
		type->show(value);
	}
	xdr_free(type->xdr, value);
	free(value);
	say_word((uint32_t)accepted);
	say_word(used);
	say_word(again_len);
	say(again, again_len);
	say_word((uint32_t)json_len);
	say(json, json_len);
}

int main(void)
{
	static char bytes[LONGEST];
	uint32_t count = 0, number, len;

	while (types[count].name)
		count++;
	say_word(count);
	for (uint32_t i = 0; i < count; i++)
		say(types[i].name, strlen(types[i].name) + 1);
	fflush(stdout);
	while (get(&number, sizeof number)) {
		if (number == UINT32_MAX) {
			fflush(stdout);
			continue;
		}
		if (number >= count || !get(&len, sizeof len) || len > LONGEST || !get(bytes, len)) {
			fprintf(stderr, "a request that cannot be understood\n");
			return 1;
		}
		answer(&types[number], bytes, len);
	}
	return 0;
}
