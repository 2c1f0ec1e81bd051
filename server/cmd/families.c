#include "server/cmd/families.h"
#include "engine/model/model.h"
#include <stdio.h>

int families_main(void)
{
    const struct model_family *f;
    for (uint32_t i = 0; (f = model_family_at(i)); i++)
        printf("%-32s %-16s %s: %s\n", f->arch, f->model_type, f->served, f->variants);
    return 0;
}
