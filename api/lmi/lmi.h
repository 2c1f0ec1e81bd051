/* lmi: the dialect of LMI and TGI containers, whose bodies have "inputs", "parameters" and "stream".   Thread: the
 * call's owner.
 * The dialect has three forms, which differ in the text around the objects of an answer. */
#pragma once
#include "api/dialect.h"

/* Bits of struct param's `on`: the body's own fields, and those of its "parameters" (fields.c). */
enum { ON_BODY = 1, ON_PARAMETERS = 2 };
extern const struct param_fields lmi_fields;
