/* task: what a server does with prompts. All requests of one model have the same end.   Thread: any. */
#pragma once

enum api_task { TASK_GENERATE, TASK_EMBED, TASK_AUTO /* of the option alone: as the model folder says */ };
