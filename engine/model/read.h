/* read: what read.c and read_quant.c share.   Private to engine/model/. Thread: readers, several at a time on distinct rows. */
#pragma once
#include "engine/model/model_impl.h"

/* Are the words of this checkpoint's codes read whole, a job at a time? */
bool read_quant_whole(const struct place *p);
/* Rows [row, row + n_row) of a job whose tensor is codes, to the device. stage: their bytes, where they are not read whole.
 * ST_CONFIG: one line in err; ST_IO: errno says why, err is empty. */
enum status read_quant_order(struct place *p, const struct place_job *job, char *err, size_t err_bytes); /* a job of the inputs' order */
enum status read_quant(struct place *p, const struct place_job *job, uint32_t row, uint32_t n_row, const unsigned char *stage, char *err,
                       size_t err_bytes);
