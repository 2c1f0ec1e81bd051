/* plan: what one rank of a model holds: its sizes, and the walk over all of its weights and workspaces.
 * plan_begin -> plan_weights -> plan_work. Private to engine/model/.   Thread: the one that loads. */
#pragma once
#include "engine/model/model_impl.h"
#include "engine/model/place.h"

/* The sizes of rank dev->rank into m, and a walk that only sums up; whoever loads sets its bind (place.h) before the
 * walk. m begins anew: what it held is forgotten. */
void plan_begin(struct place *p_out, struct model *m, const struct model_spec *spec, const struct model_load_cfg *cfg,
                struct device *dev);
/* Every weight. Loading: m->layer is [n_layer] of zeros. */
void plan_weights(struct place *p);
/* The workspaces, without what the device's own step takes (dev_step_bytes of plan_limits). */
void              plan_work(struct place *p);
struct dev_limits plan_limits(const struct place *p, const struct model_load_cfg *cfg);
