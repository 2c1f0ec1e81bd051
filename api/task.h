/* task: what a server does with prompts. All requests of one model have the same end.   Thread: any. */
#pragma once

enum api_task {
    TASK_GENERATE,
    TASK_EMBED,    /* vectors; pairs are scored by their cosine */
    TASK_CLASSIFY, /* probabilities of labels; with one label it scores pairs too */
    TASK_SCORE,    /* of a model: pairs are scored by its logits. Of a dialect: pairs, by any model that can */
    TASK_AUTO      /* of the option alone: as the model folder says */
};
