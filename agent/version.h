// Which agent this is.
#pragma once

#include "json.h"

namespace agent {

// {"version": edgedeploy's, "tvm": TVM's, "build": the hash of all that the agent was built from}
Json Version();
// edgedeploy's alone.
const char* VersionText();

}  // namespace agent
