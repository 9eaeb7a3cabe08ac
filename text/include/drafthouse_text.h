// The C border of the Rust crate: tokenizers, chat templates and grammars. Used by src/text only.
//
// Functions return DHT_OK or an error code; then `error` (owned, free with dht_text_free) says why
// and no other output is set. No panic crosses the border. Views that go in need to live only for
// the call. Handles are immutable and thread-safe until they are freed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  DHT_OK = 0,
  DHT_INVALID = 1,      // the caller's text, messages or options
  DHT_CORRUPT = 2,      // the model's file
  DHT_UNSUPPORTED = 3,  // a valid file that needs something that is not built
  DHT_INTERNAL = 4      // a panic
};

typedef struct dht_tokenizer dht_tokenizer;
typedef struct dht_template dht_template;

typedef struct dht_view {
  const char* data;  // may be null when size is 0
  size_t size;
} dht_view;

typedef struct dht_text {
  char* data;
  size_t size;
} dht_text;

typedef struct dht_ids {
  uint32_t* data;
  size_t size;
} dht_ids;

typedef struct dht_gguf_vocabulary {
  dht_view model;
  dht_view pre;
  const dht_view* tokens;
  size_t token_count;
  const int32_t* token_types;  // as many as tokens, or none
  size_t token_type_count;
  const dht_view* merges;
  size_t merge_count;
} dht_gguf_vocabulary;

void dht_text_free(dht_text text);
void dht_ids_free(dht_ids ids);

// Bytes that Rust code of this process holds now.
uint64_t dht_allocated_bytes(void);

int32_t dht_tokenizer_from_json(dht_view json, dht_tokenizer** out, dht_text* error);
int32_t dht_tokenizer_from_gguf(const dht_gguf_vocabulary* vocabulary, dht_tokenizer** out,
                                dht_text* error);
void dht_tokenizer_free(dht_tokenizer* tokenizer);

int32_t dht_tokenizer_encode(const dht_tokenizer* tokenizer, dht_view text, int32_t add_special,
                             dht_ids* out, dht_text* error);
int32_t dht_tokenizer_decode(const dht_tokenizer* tokenizer, const uint32_t* ids, size_t count,
                             int32_t skip_special, dht_text* out, dht_text* error);
// The view lives as long as the tokenizer.
dht_view dht_tokenizer_bytes(const dht_tokenizer* tokenizer, uint32_t id);
int32_t dht_tokenizer_is_special(const dht_tokenizer* tokenizer, uint32_t id);
uint32_t dht_tokenizer_size(const dht_tokenizer* tokenizer);
int64_t dht_tokenizer_id(const dht_tokenizer* tokenizer, dht_view token);

int32_t dht_template_create(dht_view source, dht_template** out, dht_text* error);
void dht_template_free(dht_template* chat_template);

typedef struct dht_render_input {
  dht_view messages;  // JSON array
  dht_view specials;  // JSON object: bos_token, eos_token, …
  dht_view options;   // JSON object of more variables, or empty
  int32_t add_generation_prompt;
  int64_t now;  // seconds since 1970, for strftime_now
} dht_render_input;

int32_t dht_template_render(const dht_template* chat_template, const dht_render_input* input,
                            dht_text* out, dht_text* error);

typedef struct dht_vocabulary dht_vocabulary;
// Unlike the others used by one thread at a time.
typedef struct dht_matcher dht_matcher;

enum { DHT_JSON_SCHEMA = 0, DHT_REGEX = 1, DHT_LARK = 2 };

// The tokens as grammars see them. `end_ids` may follow where a grammar is satisfied.
int32_t dht_vocabulary_create(const dht_tokenizer* tokenizer, const uint32_t* end_ids, size_t count,
                              dht_vocabulary** out, dht_text* error);
void dht_vocabulary_free(dht_vocabulary* vocabulary);

int32_t dht_matcher_create(const dht_vocabulary* vocabulary, int32_t form, dht_view text,
                           dht_matcher** out, dht_text* error);
// Another one at the same place; the two share nothing that changes.
int32_t dht_matcher_clone(const dht_matcher* matcher, dht_matcher** out, dht_text* error);
void dht_matcher_free(dht_matcher* matcher);
// One bit per id that may come next, lowest first.
int32_t dht_matcher_mask(dht_matcher* matcher, uint32_t* bits, size_t words, dht_text* error);
// taken: 0 where the id may not come next.
int32_t dht_matcher_consume(dht_matcher* matcher, uint32_t id, int32_t* taken, dht_text* error);
// Takes the last ids back, end ids not among them; back to the beginning.
int32_t dht_matcher_rollback(dht_matcher* matcher, size_t ids, dht_text* error);
int32_t dht_matcher_reset(dht_matcher* matcher, dht_text* error);

#ifdef __cplusplus
}
#endif
