// The commands, as docs/agent.md describes them. Each takes the words after its name and returns an exit code.
#pragma once

#include <string>
#include <vector>

#include "failure.h"
#include "json.h"

namespace agent {

using Words = std::vector<std::string>;

Code RunCommand(const Words& words);
Code SelfTestCommand(const Words& words);
Code VerifyCommand(const Words& words);
Code FactsCommand(const Words& words);
Code DemoCommand(const Words& words);
Code ServeCommand(const Words& words);
Code ServiceCommand(const Words& words);
Code RpcCommand(const Words& words);

// Prints a result: one line on standard output. Failure(kOutput) if nobody takes it.
void Print(const Json& result);

}  // namespace agent
