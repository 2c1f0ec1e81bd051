/* endpoint: the handlers of the small routes: the page, models, metrics, version, tokenize and detokenize.
 * Thread: the connection's io thread. */
#pragma once

struct conn;

/* Each answers the request of c once. Those that need the tokenizer or a large text hand the work to a text thread: */
void endpoint_page(struct conn *c);
void endpoint_page_file(struct conn *c);
void endpoint_version(struct conn *c);
void endpoint_models(struct conn *c);
void endpoint_metrics(struct conn *c);
void endpoint_model_card(struct conn *c);
void endpoint_tokenize(struct conn *c);
void endpoint_count_tokens(struct conn *c);
void endpoint_input_tokens(struct conn *c);
void endpoint_detokenize(struct conn *c);
void endpoint_tokenizer_info(struct conn *c);
