// What Ultralytics' exporters write of a network: edgedeploy/vision/decoders/ultralytics.py in C++.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace agent {

struct UltralyticsDescription {
  std::optional<std::string> task;
  std::vector<std::string> names;
  // How many points each thing has, and the values of each: x, y and perhaps a score.
  std::pair<int64_t, int64_t> points{17, 3};
};

// Of entries by key, each as Python writes such a value; others are passed over. Failure(kInput) for any other
// value.
UltralyticsDescription DescribeUltralytics(const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace agent
