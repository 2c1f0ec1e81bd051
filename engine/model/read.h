/* read: the jobs of a walk (place.h) carried out.   Private to engine/model/. Thread: model_read and model_dummy: the
 * one that loads; the others: readers, several at a time on distinct rows. */
#pragma once
#include "engine/model/place.h"

/* read.c: every job's bytes to the device, by several threads. */
enum status model_read(struct place *p, const struct model_load_cfg *cfg, char *err, size_t err_bytes);
/* dummy.c: numbers for every job instead: the same ones whatever the device and the number of ranks. */
void model_dummy(struct place *p, const struct model_load_cfg *cfg);

/* A job whose tensor is a stack, to the device. It holds the bytes of one expert's matrix meanwhile. Errors as those of
 * read_quant. */
enum status read_stack(struct place *p, const struct place_job *job, char *err, size_t err_bytes);

/* Are the words of this checkpoint's codes read whole, a job at a time? */
bool read_quant_whole(const struct place *p);
/* Rows [row, row + n_row) of a job whose tensor is codes, to the device. stage: their bytes, where they are not read
 * whole. ST_CONFIG: one line in err; ST_IO: errno says why, err is empty. */
enum status read_quant_order(struct place *p, const struct place_job *job, char *err,
                             size_t err_bytes); /* a job of the inputs' order */
enum status read_quant(struct place *p, const struct place_job *job, uint32_t row, uint32_t n_row,
                       const unsigned char *stage, char *err, size_t err_bytes);
