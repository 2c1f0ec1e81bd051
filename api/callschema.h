/* callschema: what the schema of a tool's arguments says of them as a whole.   Thread: any. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

/* Is every value that this schema accepts an object? May say no although it is. */
bool callschema_is_of_objects(const json_t *schema);
/* No keyword says anything about the arguments. */
bool callschema_says_nothing(const json_t *schema);
