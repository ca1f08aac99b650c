// The agent: runs packages of edgedeploy on a board. docs/agent.md is its contract.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "commands.h"
#include "files.h"
#include "version.h"

namespace agent {
namespace {

constexpr char kUsage[] =
    "usage: agent run PACKAGE [--input NAME=FILE]... [--fill zeros|ones|selftest] [--output-dir DIR]\n"
    "                 [--repeat N] [--number N] [--warmup N] [--threads N]\n"
    "       agent selftest PACKAGE [--threads N]\n"
    "       agent verify PACKAGE\n"
    "       agent facts [--path DIR]\n"
    "       agent demo MODEL|PACKAGE (--image FILE... | --camera [DEVICE]) [--repeat N] [--threads N] [--frames N]\n"
    "                 [--size WIDTHxHEIGHT] [--json | --stream]\n"
    "       agent serve PACKAGE [--threads N]\n"
    "       agent service MODEL --socket PATH [--camera [DEVICE]] [--threads N] [--log FILE] [--log-bytes N]\n"
    "       agent rpc [--host ADDRESS] [--port N] [--port-end N] [--tracker HOST:PORT] [--key KEY]\n"
    "                 [--custom-address ADDRESS] [--announce-port N] [--work-dir DIR] [--threads N] [--heartbeat S]\n"
    "       agent --version | --help\n";

// Code for a newer processor ends in this signal; without a word nobody would guess why.
void OnIllegalInstruction(int) {
  constexpr char kMessage[] =
      "agent: the code uses an instruction that this processor lacks: it is for another board\n";
  const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  static_cast<void>(written);
  _exit(static_cast<int>(Code::kPackage));
}

Code Dispatch(const std::string& command, const Words& words) {
  if (command == "run") return RunCommand(words);
  if (command == "selftest") return SelfTestCommand(words);
  if (command == "verify") return VerifyCommand(words);
  if (command == "facts") return FactsCommand(words);
  if (command == "demo") return DemoCommand(words);
  if (command == "serve") return ServeCommand(words);
  if (command == "service") return ServiceCommand(words);
  if (command == "rpc") return RpcCommand(words);
  if (command == "--version") {
    Print(Version());
    return Code::kDone;
  }
  if (command == "--help") {
    WriteAll(STDOUT_FILENO, kUsage, sizeof kUsage - 1, "to standard output");
    return Code::kDone;
  }
  throw Failure(Code::kUsage, command.empty() ? "no command was given" : "unknown command " + command,
                "see agent --help");
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
