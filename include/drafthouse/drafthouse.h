#ifndef DRAFTHOUSE_DRAFTHOUSE_H
#define DRAFTHOUSE_DRAFTHOUSE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * drafthouse as a C library: several models with their DFlash drafts in one process. C11 and C++.
 *
 *   dh_status why = DH_STATUS_INIT;
 *   dh_host_options options;
 *   dh_host_options_init(&options, sizeof options);
 *   dh_host* host = NULL;
 *   if (dh_host_create(&options, &host, &why) != DH_OK) … why.message …
 *
 * The library prints nothing, installs no signal handler and never exits; no C++ exception leaves
 * it. docs/EMBEDDING.md has the whole picture.
 *
 * Results. A function that can fail returns a code and takes a dh_status, which may be null. The
 * status must be initialised (DH_STATUS_INIT); each call that is given it replaces what it held;
 * release it with dh_status_clear. Messages are one line: what, where, why, and the next step.
 *
 * Structs start with `size`: sizeof, as the caller was compiled; the _init functions set it and
 * fill in the defaults. Fields past `size` have their defaults. A larger size than this library
 * knows is accepted while the bytes that it does not know are zero (DH_UNSUPPORTED otherwise);
 * what it writes is filled up with zero. So old programs run with new libraries and the other way
 * round. Structs in an array all have the size of the first one. `reserved` is zero.
 *
 * Strings are pointer and length, in UTF-8 unless told; no zero is needed behind them, and null
 * with length 0 is empty. The library copies what it keeps. Strings and arrays that it gives out
 * belong to it and end when it says; only what is to be released with dh_string_free belongs to
 * the caller. They have a zero behind them.
 *
 * Handles. Calls with one that was destroyed answer DH_CLOSED (null: DH_INVALID_ARGUMENT) and do
 * nothing; destroying it again does nothing.
 *
 * Threads. Any function may be called from any thread at any time; for one stream, dh_stream_next
 * by one at a time (DH_BUSY otherwise). dh_host_destroy waits for other threads' calls in the host.
 *
 * fork(). In a child that goes on without exec() every call answers DH_CLOSED ("Forked: …") once
 * the parent had a host; file locks stay with the parent.
 */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DH_API __attribute__((visibility("default")))
#else
#define DH_API
#endif

/* Raised when functions or fields are added. Incompatible changes change the library's SONAME. */
#define DH_ABI_VERSION 4u

/* The library's, which may be newer or older than the header's. */
DH_API uint32_t dh_abi_version(void);
/* "0.1.0"; static. */
DH_API const char* dh_version(void);

typedef struct dh_host dh_host;
typedef struct dh_stream dh_stream;

typedef struct dh_string {
  const char* data;
  size_t length;
} dh_string;

/* A string of C as one of ours; null is empty. */
static inline dh_string dh_str(const char* text) {
  dh_string string = {text, 0};
  if (text != NULL) string.length = strlen(text);
  return string;
}

/* Releases what a function gave to its caller. Null is nothing to do. */
DH_API void dh_string_free(dh_string string);

typedef int32_t dh_code;
enum {
  DH_OK = 0,
  DH_INVALID_ARGUMENT = 1, /* never accepted, whatever the state */
  DH_CONTEXT_OVERFLOW = 2, /* prompt and max_tokens do not fit the context */
  DH_NOT_FOUND = 3,        /* no such model, file, template */
  DH_BUSY = 4,             /* a queue is full; the same call may work later */
  DH_NO_MEMORY = 5,        /* the memory budget; the message has the arithmetic */
  DH_CORRUPT = 6,          /* a file is not what its format promises */
  DH_MISMATCH = 7,         /* a draft does not fit its target */
  DH_UNSUPPORTED = 8,      /* valid, but not built */
  DH_CONFLICT = 9,         /* two owners want one thing; the message names both */
  DH_CLOSED = 10,          /* the host or stream has gone, or the process was forked */
  DH_CANCELLED = 11,       /* the caller left, or the deadline passed */
  DH_INTERNAL = 12,        /* our mistake, or an error of the machine */
  /* From dh_stream_next only, without a message: */
  DH_NO_EVENT = 100, /* none came in time */
  DH_OVER = 101      /* the terminal one has been taken */
};
/* "no_memory"; static. "unknown" for another number. */
DH_API const char* dh_code_name(dh_code code);

typedef struct dh_status {
  size_t size;
  dh_code code;
  int32_t reserved;
  dh_string message; /* empty for DH_OK */
} dh_status;

#define DH_STATUS_INIT {sizeof(dh_status), DH_OK, 0, {NULL, 0}}

/* Back to DH_OK; releases the message. */
DH_API void dh_status_clear(dh_status* status);

/* ---- the host ---- */

enum { DH_LOG_INFO = 0, DH_LOG_WARNING = 1, DH_LOG_ERROR = 2 };
/* One line, without a newline, valid during the call. Called on any thread; must not call the
 * library. */
typedef void (*dh_log_fn)(void* context, int32_t level, const char* line, size_t length);

typedef struct dh_host_options {
  size_t size;
  uint64_t memory_bytes;  /* of all models; 0: nine tenths of the machine's */
  double idle_unload_s;   /* unloads a model that is not used for so long; 0: never */
  double load_cooldown_s; /* a load that failed is not tried again for so long; 5 */
  double switch_after_s;  /* how long requests for a model that is not loaded let others begin; 2 */
  const dh_string* hook_plugins; /* absolute paths of shared libraries, see drafthouse/hooks.h */
  size_t hook_plugin_count;
  dh_log_fn log;     /* may be null */
  void* log_context; /* must live as long as the host */
  uint32_t threads;  /* compute threads of all models together; 0: one per core */
  uint32_t reserved;
} dh_host_options;
DH_API void dh_host_options_init(dh_host_options* options, size_t size);

/* `options` may be null: the defaults. */
DH_API dh_code dh_host_create(const dh_host_options* options, dh_host** host, dh_status* status);
/* Ends all requests (their streams give a terminal event with DH_CLOSED), waits for the calls of
 * other threads in this host (a load in progress among them) and for the host's own threads, and
 * writes what the disk tiers lack. Its streams stay valid until they are destroyed. */
DH_API void dh_host_destroy(dh_host* host);

/* ---- models ---- */

/* The prefix cache of one model. */
typedef struct dh_cache_config {
  size_t size;
  uint64_t ram_bytes;        /* pages in RAM; 0: as many as the memory budget leaves */
  uint64_t ram_floor_bytes;  /* of them, never taken by other models; 64 MiB */
  dh_string disk_directory;  /* shared by any number of models and processes; empty: no disk tier */
  uint64_t disk_bytes;       /* of all below that folder; 0: no limit; 20 GiB */
  uint64_t disk_free_bytes;  /* stay free on its file system; 1 GiB */
  uint64_t disk_queue_bytes; /* wait to be written; more is dropped and counted; 512 MiB */
  uint32_t snapshot_tokens;  /* between the snapshots of a long answer, at least 64; 1,024 */
  int32_t enabled;           /* 1 */
  int32_t trace;             /* for diagnostics; 0 */
  uint32_t reserved;
} dh_cache_config;
DH_API void dh_cache_config_init(dh_cache_config* config, size_t size);

typedef struct dh_model_spec {
  size_t size;
  dh_string name;   /* what requests call it; unique in the host */
  dh_string target; /* a Hugging Face folder, a .gguf file, or a hub id in the local hub cache */
  dh_string draft;  /* the same; empty: plain decoding */
  dh_string label;  /* tells two loads of one pair apart */
  dh_string isa;    /* "generic", "avx2", …; empty: the best of this machine */
  const dh_cache_config* cache; /* null: the defaults */
  double weight;                /* share of the compute threads beside other busy models; 1 */
  uint32_t context;             /* positions of a sequence; 0: what the model was made for */
  uint32_t sequences;           /* run at once, 1 to 64; 16 */
  uint32_t queue;               /* requests that wait for one of them; 64 */
  int32_t compute_fp32;         /* activations and state in fp32; 0 */
  int32_t pinned;               /* never unloaded to make room; 0 */
  uint32_t reserved;
  uint32_t draft_window; /* last positions that the draft keeps, 256 at least, 0: all; 1,024 */
  uint32_t draft_sink;   /* first positions that it keeps besides; 64 */
  /* A folder of this user's alone that keeps the weights as they lie in memory, for a quick next
   * load of the same files; empty: none. What is in it may be deleted at any time. */
  dh_string packed_directory;
} dh_model_spec;
DH_API void dh_model_spec_init(dh_model_spec* spec, size_t size);

/* Makes a model known; requests load it. DH_CONFLICT when another one has the name. */
DH_API dh_code dh_model_add(dh_host* host, const dh_model_spec* spec, dh_status* status);
/* Loads a known model and waits for it; several callers load it once. When it fails all is as
 * before. */
DH_API dh_code dh_model_load(dh_host* host, dh_string name, dh_status* status);
/* The same for a new one; of a known one the spec must be the same. */
DH_API dh_code dh_model_load_new(dh_host* host, const dh_model_spec* spec, dh_status* status);

typedef struct dh_unload_options {
  size_t size;
  double deadline_s;  /* requests that run may end until then, the others fail; 30 */
  int32_t keep_cache; /* keep it in memory for a later load; 0 */
  uint32_t reserved;
} dh_unload_options;
DH_API void dh_unload_options_init(dh_unload_options* options, size_t size);

/* New requests wait for a reload. Not loaded: nothing to do. `options` may be null. */
DH_API dh_code dh_model_unload(dh_host* host, dh_string name, const dh_unload_options* options,
                               dh_status* status);
/* Unloads and forgets. */
DH_API dh_code dh_model_remove(dh_host* host, dh_string name, const dh_unload_options* options,
                               dh_status* status);
/* Changes the prefix cache of a model while it and others run: requests go on as they began,
 * entries that stay valid are kept. */
DH_API dh_code dh_model_reconfigure(dh_host* host, dh_string name, const dh_cache_config* cache,
                                    dh_status* status);
DH_API dh_code dh_model_pin(dh_host* host, dh_string name, int32_t on, dh_status* status);

/* ---- requests ---- */

/* A call of a tool that a model wrote, or that a message of a conversation holds. */
typedef struct dh_tool_call {
  size_t size;
  dh_string name;
  dh_string arguments; /* a JSON object */
  dh_string id;        /* in messages, where a template wants one */
} dh_tool_call;

typedef struct dh_chat_turn {
  size_t size;
  dh_string role; /* "system", "user", "assistant", "tool" */
  dh_string content;
  /* Since version 3. Of the assistant, for templates that show them again: */
  dh_string reasoning;
  const dh_tool_call* tool_calls;
  size_t tool_call_count;
  /* Of a tool's result: which call it answers, and the tool's name. */
  dh_string tool_call_id;
  dh_string name;
} dh_chat_turn;

typedef struct dh_logit_bias {
  uint32_t id;
  float bias;
} dh_logit_bias;

/* How ids are chosen; meanings, bounds and order as in drafthouse/sampling.h. */
typedef struct dh_sampling {
  size_t size;
  uint64_t seed;               /* one seed gives one text; with has_seed */
  int32_t has_seed;            /* 0: a random one, told in dh_result */
  float temperature;           /* 0: always the most likely id */
  uint32_t top_k;              /* 0: all */
  float top_p;                 /* 1 */
  float min_p;                 /* 0 */
  float typical_p;             /* 1 */
  float xtc_probability;       /* 0 */
  float xtc_threshold;         /* 0.1 */
  float repetition_penalty;    /* 1 */
  float presence_penalty;      /* 0 */
  float frequency_penalty;     /* 0 */
  float dry_multiplier;        /* 0: off */
  float dry_base;              /* 1.75 */
  uint32_t dry_allowed_length; /* 2 */
  uint32_t dry_range;          /* 0: all */
  uint32_t min_tokens;         /* before which no id that ends the answer is chosen; 0 */
  const uint32_t* dry_breaker_ids;
  size_t dry_breaker_id_count;
  const dh_logit_bias* logit_bias;
  size_t logit_bias_count;
  const uint32_t* ban_ids;
  size_t ban_id_count;
  const uint32_t* allow_ids; /* none: all */
  size_t allow_id_count;
} dh_sampling;
DH_API void dh_sampling_init(dh_sampling* sampling, size_t size);

typedef struct dh_submit_request {
  size_t size;
  dh_string model;
  /* Exactly one of the three: a conversation through the model's chat template, a text as it is,
   * ids. */
  const dh_chat_turn* messages;
  size_t message_count;
  dh_string prompt;
  const uint32_t* prompt_ids;
  size_t prompt_id_count;

  const dh_string* stop; /* the text ends before the first of these */
  size_t stop_count;
  dh_string salt;       /* requests with different ones never share cached state; any bytes */
  double timeout_s;     /* from submission to the last event; 0: none */
  uint64_t event_queue; /* events that wait to be taken; a full queue pauses the sequence; 256 */
  uint32_t max_tokens;  /* 0: until the context is full */
  uint32_t width;       /* rows of a verify pass; 1: plain decoding, 0: chosen every turn */
  int32_t ignore_eos;   /* 0 */
  int32_t use_cache;    /* 1 */
  int32_t priority;     /* higher first; 0 */
  uint32_t reserved;
  /* Since version 2. */
  const dh_sampling* sampling; /* null: the most likely ids */
  const uint32_t* stop_ids;    /* end the answer like the model's own end ids */
  size_t stop_id_count;
  dh_string
      grammar; /* what the answer conforms to; DH_INVALID_ARGUMENT, with the place, when wrong */
  int32_t grammar_form; /* DH_GRAMMAR_…; 0 */
  uint32_t n;           /* answers that differ in their draws, 1 to 16; 1 */
  /* Since version 3. */
  dh_string template_options;  /* with messages: a JSON object of template variables,
                                  {"enable_thinking": false} */
  dh_string tools;             /* a JSON list of {"type": "function", "function": {…}} */
  dh_string documents;         /* with messages: a JSON list of objects */
  int32_t reply_format;        /* DH_REPLY_…; 0: the model's own */
  int32_t has_thinking_budget; /* 0 */
  uint32_t thinking_budget;    /* tokens of thoughts, after which they are ended */
  int32_t logprobs;            /* of each id, in the results; 0 */
  uint32_t top_logprobs;       /* with so many of the most likely ids, 100 at most */
  int32_t prompt_logprobs;     /* the same of the prompt's ids from the second on; 0 */
} dh_submit_request;

/* How a reply marks what the model thinks and the tools it calls; see drafthouse/reply.h. */
enum {
  DH_REPLY_AUTO = 0,
  DH_REPLY_PLAIN = 1,
  DH_REPLY_THINK = 2,
  DH_REPLY_GEMMA = 3,
  DH_REPLY_HARMONY = 4,
  DH_REPLY_LLAMA = 5,
  DH_REPLY_LFM2 = 6
};

enum {
  DH_GRAMMAR_NONE = 0,
  DH_GRAMMAR_JSON_SCHEMA = 1,
  DH_GRAMMAR_REGEX = 2, /* over the whole answer */
  DH_GRAMMAR_LARK = 3
};
DH_API void dh_submit_request_init(dh_submit_request* request, size_t size);

/* Returns at once, with a stream or a refusal. */
DH_API dh_code dh_submit(dh_host* host, const dh_submit_request* request, dh_stream** stream,
                         dh_status* status);

/* What the prefix cache gave and took. */
typedef struct dh_cache_report {
  size_t size;
  dh_string tier;          /* "none", "ram", "disk" */
  dh_string reason;        /* why not more */
  uint32_t matched_tokens; /* of the prompt, whole pages of 64 */
  uint32_t stored_pages;   /* of prompt and answer, at the end */
} dh_cache_report;

typedef struct dh_id_logprob {
  uint32_t id;
  uint32_t reserved;
  double logprob; /* natural logarithm */
} dh_id_logprob;

/* What the target gave to an id by its own logits, and the most likely ids there, falling. */
typedef struct dh_token_logprob {
  uint32_t id;
  uint32_t top_count;
  double logprob;
  const dh_id_logprob* top;
} dh_token_logprob;

typedef struct dh_result {
  size_t size;
  dh_string text;          /* all of it, without special tokens, the ending id and from a stop
                              string on */
  dh_string finish_reason; /* "stop", "length", "tool_calls", "cancelled" */
  dh_string mode;          /* "dflash", "plain" */
  dh_string reason;        /* why plain */
  const uint32_t* ids;     /* generated */
  size_t id_count;
  const uint32_t* accepted_per_turn; /* ids gained by each turn */
  size_t turn_count;
  const uint32_t* width_per_turn;
  size_t width_count;
  double queue_s; /* until computing, or reading from disk, began */
  double restore_s;
  double prefill_s; /* until the first id */
  double decode_s;
  double draft_s;  /* of decode_s */
  double verify_s; /* of decode_s */
  /* Since version 2. */
  uint64_t seed;    /* of the draws, with has_seed */
  int32_t has_seed; /* 0: none were made */
  uint32_t reserved;
  /* Since version 3. The text, split: */
  dh_string reasoning;
  dh_string content;
  const dh_tool_call* tool_calls;
  size_t tool_call_count;
  uint32_t prompt_tokens;
  uint32_t reasoning_tokens;
  const dh_token_logprob* logprobs; /* of each id, when they were wanted */
  size_t logprob_count;
  const dh_token_logprob* prompt_logprobs;
  size_t prompt_logprob_count;
  const struct dh_result* more; /* the answers after the first, with n > 1; each has more[0].size
                                   bytes */
  size_t more_count;
} dh_result;

enum {
  DH_EVENT_STARTED = 0,   /* cache */
  DH_EVENT_TOKENS = 1,    /* text, ids */
  DH_EVENT_FINISHED = 2,  /* result, cache; terminal */
  DH_EVENT_CANCELLED = 3, /* result so far, code and message why; terminal */
  DH_EVENT_FAILED = 4     /* the same */
};

typedef struct dh_event {
  size_t size;
  int32_t kind;
  dh_code code; /* of cancelled and failed */
  dh_string message;
  dh_string text;
  const uint32_t* ids;
  size_t id_count;
  const dh_cache_report* cache; /* null with DH_EVENT_TOKENS */
  const dh_result* result;      /* null unless terminal; of the first answer */
  /* Since version 2. */
  uint32_t choice; /* of tokens: which of n answers they belong to */
  uint32_t reserved;
  /* Since version 3. Of tokens: what became certain of the reply, perhaps of earlier events' text.
   */
  dh_string reasoning;
  dh_string content;
  const dh_tool_call* tool_calls;
  size_t tool_call_count;
} dh_event;

/* Whether a struct that the library made has this field: `DH_HAS(event.result, verify_s)`. */
#define DH_HAS(pointer, field) \
  ((pointer)->size >= (size_t)((const char*)(&(pointer)->field + 1) - (const char*)(pointer)))

/* Waits for the next event, at most so long (negative: until one comes). DH_OK: `event` holds it,
 * with pointers that are valid until the next call for this stream or its destruction; set
 * event->size before the first call. DH_NO_EVENT, DH_OVER: there is none. */
DH_API dh_code dh_stream_next(dh_stream* stream, double timeout_s, dh_event* event,
                              dh_status* status);
/* The terminal event still comes. May be called again. */
DH_API dh_code dh_stream_cancel(dh_stream* stream, dh_status* status);
/* A descriptor that is readable while dh_stream_next would not wait; the stream's, not to be read
 * or closed. -1: closed. */
DH_API int32_t dh_stream_event_fd(dh_stream* stream);
/* Cancels the request if it runs. Another thread that waits in dh_stream_next gets DH_CLOSED. */
DH_API void dh_stream_destroy(dh_stream* stream);

/* ---- cache, figures, end ---- */

/* Drops cached state of a model: of one salt, or of all (null). `bytes`: dropped; may be null. */
DH_API dh_code dh_cache_clear(dh_host* host, dh_string name, const dh_string* salt, uint64_t* bytes,
                              dh_status* status);
/* Waits until what was published is on disk, or has been given up because the disk takes no more.
 */
DH_API dh_code dh_cache_flush(dh_host* host, double deadline_s, dh_status* status);

/* {"memory": {"limit", "used", "peak"}, "models": {NAME: {"state", "requests", …}}}, names and
 * meanings as in HostStats of drafthouse/host.h. Release with dh_string_free. */
DH_API dh_code dh_stats(dh_host* host, dh_string* json, dh_status* status);
/* [{"model", "tag", "bytes"}, …]: every byte that the host accounts for; "model" is "" for what
 * belongs to none. Release with dh_string_free. */
DH_API dh_code dh_ledger(dh_host* host, dh_string* json, dh_status* status);

enum {
  DH_MODEL_REGISTERED = 0,
  DH_MODEL_WAITING = 1,
  DH_MODEL_LOADING = 2,
  DH_MODEL_READY = 3,
  DH_MODEL_UNLOADING = 4,
  DH_MODEL_FAILED = 5
};

/* The figures of a model that programs poll; all of them are in dh_stats. */
typedef struct dh_model_stats {
  size_t size;
  int32_t state; /* DH_MODEL_… */
  uint32_t queued;
  uint32_t running;
  uint32_t reserved;
  uint64_t requests;
  uint64_t finished;
  uint64_t cancelled;
  uint64_t failed;
  uint64_t prompt_tokens;
  uint64_t generated_tokens;
  uint64_t turns;
  uint64_t turn_tokens; /* ÷ turns: the acceptance length */
  uint64_t ram_hit_tokens;
  uint64_t disk_hit_tokens;
  uint64_t cache_bytes;
  uint64_t memory_bytes;
  uint64_t manager_rebuilds;
} dh_model_stats;
/* `stats->size` must be set. */
DH_API dh_code dh_model_stats_get(dh_host* host, dh_string name, dh_model_stats* stats,
                                  dh_status* status);

/* Takes no new requests (DH_CLOSED) and waits for those there are; the rest is cancelled at the
 * deadline. */
DH_API dh_code dh_drain(dh_host* host, double deadline_s, dh_status* status);

#ifdef __cplusplus
}
#endif

#endif
