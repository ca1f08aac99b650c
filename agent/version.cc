#include "version.h"

// The build says what they are.
#if !defined(AGENT_VERSION) || !defined(AGENT_TVM) || !defined(AGENT_BUILD)
#error "AGENT_VERSION, AGENT_TVM and AGENT_BUILD must be defined"
#endif

namespace agent {

Json Version() { return Json::NewObject({{"version", AGENT_VERSION}, {"tvm", AGENT_TVM}, {"build", AGENT_BUILD}}); }

const char* VersionText() { return AGENT_VERSION; }

}  // namespace agent
