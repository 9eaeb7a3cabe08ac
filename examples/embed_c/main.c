/*
 * Several models in one process through the C interface: interleaved requests, one model
 * reconfigured and one unloaded while others answer.
 *
 *   cc -std=c11 main.c $(pkg-config --cflags --libs drafthouse) -o embed_c
 *   ./embed_c NAME TARGET DRAFT [NAME TARGET DRAFT …]      two models or more; DRAFT may be ""
 */
#include <drafthouse/drafthouse.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { MODELS_MAX = 8, PROMPTS = 2, ANSWER_TOKENS = 48, WAIT_S = 600 };

/* What all requests share comes from the prefix cache, in pages of 64 tokens. */
static const char system_text[] =
    "You are a patient assistant for people who learn to program. Answer in a few plain sentences, "
    "say "
    "what a word means when you use it for the first time, and show a short piece of code when it "
    "helps. "
    "When you do not know something, say so, and say where one could look it up.";
static const char* const prompts[PROMPTS] = {"Write a Python function that adds two numbers.",
                                             "What is the capital of France?"};

/* One request, and what is kept of its answer. */
struct request {
  const char* model;
  dh_stream* stream; /* NULL once over */
  uint32_t ids[ANSWER_TOKENS];
  size_t id_count;
};

static void fail(const char* what, const dh_status* why) {
  fprintf(stderr, "%s: %s: %.*s\n", what, dh_code_name(why->code), (int)why->message.length,
          why->message.data != NULL ? why->message.data : "");
  exit(1);
}

static void log_line(void* context, int32_t level, const char* line, size_t length) {
  (void)context;
  if (level >= DH_LOG_WARNING) fprintf(stderr, "%.*s\n", (int)length, line);
}

static void start(dh_host* host, struct request* request, const char* model, const char* prompt) {
  dh_status why = DH_STATUS_INIT;
  const dh_chat_turn turns[] = {
      {.size = sizeof(dh_chat_turn), .role = dh_str("system"), .content = dh_str(system_text)},
      {.size = sizeof(dh_chat_turn), .role = dh_str("user"), .content = dh_str(prompt)}};
  dh_submit_request wanted;
  dh_submit_request_init(&wanted, sizeof wanted);
  wanted.model = dh_str(model);
  wanted.messages = turns;
  wanted.message_count = 2;
  wanted.max_tokens = ANSWER_TOKENS;
  wanted.width = 4; /* the same figures every time; without it the width follows what is fastest */
  request->model = model;
  request->id_count = 0;
  if (dh_submit(host, &wanted, &request->stream, &why) != DH_OK) fail(model, &why);
}

static void print_answer(const struct request* request, const dh_result* result,
                         const dh_cache_report* cache) {
  double gained = 0;
  for (size_t i = 0; i < result->turn_count; ++i) gained += result->accepted_per_turn[i];
  printf("  %-8s %2zu ids, %.2f per turn, %3u prompt tokens from %s%s%s: ", request->model,
         result->id_count, result->turn_count > 0 ? gained / (double)result->turn_count : 0.0,
         cache->matched_tokens, cache->tier.data, cache->reason.length > 0 ? ", " : "",
         cache->reason.data);
  for (size_t i = 0; i < result->text.length && i < 36; ++i) {
    putchar(result->text.data[i] == '\n' ? ' ' : result->text.data[i]);
  }
  printf("\n");
}

/* Takes what has come; returns whether the request is over. */
static int take_events(struct request* request) {
  dh_status why = DH_STATUS_INIT;
  dh_event event = {.size = sizeof event};
  dh_code code;
  while ((code = dh_stream_next(request->stream, 0, &event, &why)) == DH_OK) {
    if (event.kind == DH_EVENT_TOKENS) {
      for (size_t i = 0; i < event.id_count && request->id_count < ANSWER_TOKENS; ++i) {
        request->ids[request->id_count++] = event.ids[i];
      }
    } else if (event.kind == DH_EVENT_FINISHED) {
      print_answer(request, event.result, event.cache);
    } else if (event.kind == DH_EVENT_CANCELLED || event.kind == DH_EVENT_FAILED) {
      fprintf(stderr, "%s: %s: %.*s\n", request->model, dh_code_name(event.code),
              (int)event.message.length, event.message.data);
      exit(1);
    }
  }
  if (code != DH_OVER && code != DH_NO_EVENT) fail(request->model, &why);
  return code == DH_OVER;
}

/* Waits for all requests at once, as an event loop would. */
static void finish(struct request* requests, size_t count) {
  struct pollfd ready[MODELS_MAX * PROMPTS];
  size_t running = count;
  while (running > 0) {
    for (size_t i = 0; i < count; ++i) {
      ready[i].fd = requests[i].stream != NULL ? dh_stream_event_fd(requests[i].stream) : -1;
      ready[i].events = POLLIN;
      ready[i].revents = 0;
    }
    if (poll(ready, (nfds_t)count, WAIT_S * 1000) <= 0) {
      fprintf(stderr, "no event for %d s\n", WAIT_S);
      exit(1);
    }
    for (size_t i = 0; i < count; ++i) {
      if ((ready[i].revents & POLLIN) == 0 || !take_events(&requests[i])) continue;
      dh_stream_destroy(requests[i].stream);
      requests[i].stream = NULL;
      --running;
    }
  }
}

static int same_ids(const struct request* a, const struct request* b) {
  return a->id_count == b->id_count && memcmp(a->ids, b->ids, a->id_count * sizeof a->ids[0]) == 0;
}

int main(int argc, char** argv) {
  const int models = (argc - 1) / 3;
  if ((argc - 1) % 3 != 0 || models < 2 || models > MODELS_MAX) {
    fprintf(stderr, "usage: %s NAME TARGET DRAFT NAME TARGET DRAFT [NAME TARGET DRAFT …]\n",
            argv[0]);
    return 2;
  }
  dh_status why = DH_STATUS_INIT;
  dh_host_options options;
  dh_host_options_init(&options, sizeof options);
  options.log = log_line;
  dh_host* host = NULL;
  if (dh_host_create(&options, &host, &why) != DH_OK) fail("host", &why);
  printf("drafthouse %s\n", dh_version());
  const char* names[MODELS_MAX];
  for (int i = 0; i < models; ++i) {
    dh_model_spec spec;
    dh_model_spec_init(&spec, sizeof spec);
    names[i] = argv[1 + 3 * i];
    spec.name = dh_str(names[i]);
    spec.target = dh_str(argv[2 + 3 * i]);
    spec.draft = dh_str(argv[3 + 3 * i]);
    spec.label = dh_str(names[i]);
    if (dh_model_load_new(host, &spec, &why) != DH_OK) fail(names[i], &why);
  }

  printf("every model, every prompt, at once:\n");
  struct request first[MODELS_MAX * PROMPTS];
  size_t count = 0;
  for (int p = 0; p < PROMPTS; ++p) {
    for (int i = 0; i < models; ++i) start(host, &first[count++], names[i], prompts[p]);
  }
  finish(first, count);

  printf("again; %s gets a smaller cache and %s is unloaded meanwhile:\n", names[0], names[1]);
  struct request again[MODELS_MAX * PROMPTS];
  count = 0;
  for (int p = 0; p < PROMPTS; ++p) {
    for (int i = 0; i < models; ++i) start(host, &again[count++], names[i], prompts[p]);
  }
  dh_cache_config cache;
  dh_cache_config_init(&cache, sizeof cache);
  cache.ram_bytes = 64u << 20;
  if (dh_model_reconfigure(host, dh_str(names[0]), &cache, &why) != DH_OK) fail(names[0], &why);
  dh_unload_options unload;
  dh_unload_options_init(&unload, sizeof unload);
  unload.deadline_s = WAIT_S; /* what still runs then fails */
  if (dh_model_unload(host, dh_str(names[1]), &unload, &why) != DH_OK) fail(names[1], &why);
  finish(again, count);

  printf("later; the request loads %s again:\n", names[1]);
  struct request later[2];
  start(host, &later[0], names[0], prompts[0]);
  start(host, &later[1], names[1], prompts[0]);
  finish(later, 2);

  size_t differing = 0;
  for (size_t i = 0; i < count; ++i) differing += !same_ids(&again[i], &first[i]);
  for (size_t i = 0; i < 2; ++i) differing += !same_ids(&later[i], &first[i]);
  printf("answers that differ: %zu\n", differing);
  for (int i = 0; i < models; ++i) {
    dh_model_stats stats = {.size = sizeof stats};
    if (dh_model_stats_get(host, dh_str(names[i]), &stats, &why) != DH_OK) fail(names[i], &why);
    printf("%-8s %llu of %llu requests finished, %llu tokens, %llu from the cache, %.1f MB\n",
           names[i], (unsigned long long)stats.finished, (unsigned long long)stats.requests,
           (unsigned long long)stats.generated_tokens, (unsigned long long)stats.ram_hit_tokens,
           (double)stats.memory_bytes / 1e6);
  }
  dh_string json = {NULL, 0};
  if (dh_stats(host, &json, &why) != DH_OK) fail("stats", &why);
  printf("all figures: %zu bytes of JSON\n", json.length);
  dh_string_free(json);
  dh_host_destroy(host);
  dh_status_clear(&why);
  return differing == 0 ? 0 : 1;
}
