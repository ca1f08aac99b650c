// The agent: runs packages of edgedeploy on a board. docs/agent.md is its contract.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "commands.h"
#include "files.h"
#include "version.h"

namespace agent {
namespace {

struct Command {
  const char* name;
  Code (*run)(const Words& words);
  const char* arguments;  // as its usage shows them
};

constexpr Command kCommands[] = {
    {"run", RunCommand,
     "PACKAGE [--input NAME=FILE]... [--fill zeros|ones|selftest] [--output-dir DIR]\n"
     "                 [--repeat N] [--number N] [--warmup N] [--threads N] [--entry N]"},
    {"selftest", SelfTestCommand, "PACKAGE [--threads N]"},
    {"verify", VerifyCommand, "PACKAGE"},
    {"facts", FactsCommand, "[--path DIR]"},
    {"demo", DemoCommand,
     "MODEL|PACKAGE (--image FILE... | --camera [DEVICE]) [--repeat N] [--threads N] [--frames N]\n"
     "                 [--size WIDTHxHEIGHT] [--json | --stream]"},
    {"serve", ServeCommand, "PACKAGE [--threads N]"},
    {"service", ServiceCommand,
     "MODEL --socket PATH [--camera [DEVICE]] [--threads N] [--log FILE] [--log-bytes N]"},
    {"rpc", RpcCommand,
     "[--host ADDRESS] [--port N] [--port-end N] [--tracker HOST:PORT] [--key KEY]\n"
     "                 [--custom-address ADDRESS] [--announce-port N] [--work-dir DIR] [--threads N] [--heartbeat S]"},
};

// Of one command, or of all.
void PrintUsage(const std::string& command = "") {
  std::string text;
  const auto add = [&](const std::string& line) { text += (text.empty() ? "usage: agent " : "       agent ") + line; };
  for (const Command& each : kCommands) {
    if (command.empty() || command == each.name) add(std::string(each.name) + " " + each.arguments + "\n");
  }
  if (command.empty()) add("--version | --help\n");
  WriteAll(STDOUT_FILENO, text.data(), text.size(), "to standard output");
}

// Code for a newer processor ends in this signal; without a word nobody would guess why.
void OnIllegalInstruction(int) {
  constexpr char kMessage[] =
      "agent: the code uses an instruction that this processor lacks: it is for another board\n";
  const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  static_cast<void>(written);
  _exit(static_cast<int>(Code::kPackage));
}

Code Dispatch(const std::string& name, const Words& words) {
  for (const Command& each : kCommands) {
    if (name != each.name) continue;
    if (std::find(words.begin(), words.end(), "--help") == words.end()) return each.run(words);
    PrintUsage(name);
    return Code::kDone;
  }
  if (name == "--version") {
    Print(Version());
    return Code::kDone;
  }
  if (name == "--help") {
    PrintUsage();
    return Code::kDone;
  }
  throw Failure(Code::kUsage, name.empty() ? "no command was given" : "unknown command " + name, "see agent --help");
}

}  // namespace

void Print(const Json& result) {
  const std::string line = result.Dump() + "\n";
  WriteAll(STDOUT_FILENO, line.data(), line.size(), "to standard output");
}

int Main(const Words& words) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGILL, OnIllegalInstruction);
  Code code = Code::kInternal;
  std::string message;
  try {
    return static_cast<int>(
        Dispatch(words.empty() ? "" : words[0], Words(words.begin() + !words.empty(), words.end())));
  } catch (const Failure& failure) {
    code = failure.code();
    message = failure.what();
  } catch (const std::bad_alloc&) {
    code = Code::kOther;
    message = "there is not enough memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::fprintf(stderr, "agent: %s\n", message.c_str());
  return static_cast<int>(code);
}

}  // namespace agent

int main(int count, char** values) { return agent::Main(agent::Words(values + 1, values + count)); }
