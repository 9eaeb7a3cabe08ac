// The header as C11. No struct may have padding at its end, where a later field of a newer version
// would lie within the size that older callers give.
#include "drafthouse/drafthouse.h"

#define ENDS_WITH(type, field)                                                      \
  _Static_assert(sizeof(type) == offsetof(type, field) + sizeof(((type*)0)->field), \
                 #type " has padding at its end")
#define HAS_LAYOUT(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " changed its layout")

ENDS_WITH(dh_status, message);
ENDS_WITH(dh_host_options, reserved);
ENDS_WITH(dh_cache_config, reserved);
ENDS_WITH(dh_model_spec, packed_directory);
ENDS_WITH(dh_unload_options, reserved);
ENDS_WITH(dh_tool_call, id);
ENDS_WITH(dh_chat_turn, name);
ENDS_WITH(dh_submit_request, prompt_logprobs);
ENDS_WITH(dh_sampling, allow_id_count);
ENDS_WITH(dh_cache_report, stored_pages);
ENDS_WITH(dh_id_logprob, logprob);
ENDS_WITH(dh_token_logprob, top);
ENDS_WITH(dh_result, more_count);
ENDS_WITH(dh_event, tool_call_count);
ENDS_WITH(dh_model_stats, manager_rebuilds);

#if UINTPTR_MAX == UINT64_MAX
HAS_LAYOUT(dh_string, 16);
HAS_LAYOUT(dh_status, 32);
HAS_LAYOUT(dh_host_options, 80);
HAS_LAYOUT(dh_cache_config, 80);
HAS_LAYOUT(dh_model_spec, 152);
HAS_LAYOUT(dh_unload_options, 24);
HAS_LAYOUT(dh_tool_call, 56);
HAS_LAYOUT(dh_chat_turn, 104);
HAS_LAYOUT(dh_submit_request, 264);
HAS_LAYOUT(dh_sampling, 144);
HAS_LAYOUT(dh_cache_report, 48);
HAS_LAYOUT(dh_id_logprob, 16);
HAS_LAYOUT(dh_token_logprob, 24);
HAS_LAYOUT(dh_result, 288);
HAS_LAYOUT(dh_event, 136);
HAS_LAYOUT(dh_model_stats, 128);
#endif

// What a C compiler makes of the header's inline parts; called by the test.
int dh_header_test_has_field(const dh_event* event) { return DH_HAS(event, result); }
dh_string dh_header_test_string(const char* text) { return dh_str(text); }
