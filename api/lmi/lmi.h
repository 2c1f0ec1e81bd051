/* lmi: bodies with "inputs", "parameters" and "stream", as LMI and TGI containers take them.   Thread: the call's
 * owner.
 * One dialect in three forms, which differ in what stands around the objects of an answer. */
#pragma once
#include "api/dialect.h"

/* Bits of struct param's `on`: the body's own fields, and those of its "parameters" (fields.c). */
enum { ON_BODY = 1, ON_PARAMETERS = 2 };
extern const struct param_fields lmi_fields;
