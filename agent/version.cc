#include "version.h"

// The build says what they are.
#if !defined(AGENT_VERSION) || !defined(AGENT_TVM) || !defined(AGENT_BUILD)
#error "AGENT_VERSION, AGENT_TVM and AGENT_BUILD must be defined"
#endif

namespace agent {

Json Version() {
  Json version = Json::NewObject();
  version.Set("version", AGENT_VERSION).Set("tvm", AGENT_TVM).Set("build", AGENT_BUILD);
  return version;
}

const char* VersionText() { return AGENT_VERSION; }

}  // namespace agent
