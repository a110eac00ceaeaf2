/* openai_glance.h - a look at a whole JSON answer by who only passes it on: is it one, and what did it cost? Nothing is built. */
#ifndef DEJA_BASE_OPENAI_GLANCE_H
#define DEJA_BASE_OPENAI_GLANCE_H
#include "base/json_scan.h"
#include "base/openai.h"

/* True: openai_answer_parse would take it, and find this usage. False: nothing is said, ask that. */
bool openai_glance(struct str json, enum openai_kind kind, struct openai_usage *usage);

/* For frame_glance.c: the value that comes next, as usage (nothing when it is no object) and as a choice's index. */
bool openai_glance_usage(struct json_scan *s, struct openai_usage *u);
bool openai_glance_index(struct json_scan *s, int64_t *at);

#endif
