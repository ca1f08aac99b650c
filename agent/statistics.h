// Statistics of repeated runs, under the names that edgedeploy prints.
#pragma once

#include <vector>

#include "json.h"

namespace agent {

// Adds `runs_ms` and, if there are any, their min_ms, median_ms, mean_ms, max_ms and (the population's) std_ms.
void AddStatistics(const std::vector<double>& runs_ms, Json* object);

}  // namespace agent
