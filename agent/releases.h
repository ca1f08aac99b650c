// Releases that were pushed to this board, by name (edgedeploy/release/layout.py).
#pragma once

#include <string>

namespace agent {

// The path of what a caller calls a release: what has a slash in it is a path; another name is a model's, and stands
// for the link to its release in use. Failure(kUsage) if no model can be called so.
std::string PathOfRelease(const std::string& name);

// Where a path leads, without links. Failure(kPackage) if there is nothing.
std::string RealPath(const std::string& path);

}  // namespace agent
