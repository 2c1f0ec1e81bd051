/* adapt: the slots of adapters on a device, beside the matrices of every layer.   Private to engine/model/.
 * Thread: adapt_place: the one that loads; the others: the rank's. */
#pragma once
#include "engine/model/adapter.h"
#include "engine/model/model_impl.h"
#include "engine/model/place.h"

/* Takes the memory of cfg->lora_slots adapters of rank up to cfg->lora_rank; nothing if there are none. Behind
 * plan_work; with a bind, p->m's layers get their slots. */
void adapt_place(struct place *p, const struct model_load_cfg *cfg);
/* Fills a slot with an adapter, this rank's part of it. No step in flight may use the slot. */
void adapt_set(struct model *m, uint32_t slot, const struct adapter *a);
void adapt_free(struct model *m);
