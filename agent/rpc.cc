// `agent rpc`: a server of TVM's RPC for tuning, alone or under a tracker (`tvm/rpc/server.py`).

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include "arguments.h"
#include "commands.h"
#include "heartbeat.h"
#include "machine.h"
#include "rpc_session.h"
#include "socket.h"
#include "tracker.h"

namespace agent {
namespace {

using Clock = std::chrono::steady_clock;

// tvm/rpc/base.py
constexpr int32_t kMagic = 0xff271;
constexpr int32_t kMismatch = kMagic + 2;

constexpr int kHandshakeSeconds = 10;
constexpr int32_t kMaximumGreeting = 4096;
// How often the tracker is asked, and after how many answers an offer that was taken and not used is made anew.
constexpr int kPingMilliseconds = 2000;
constexpr int kUnusedPings = 3;

void Log(const std::string& text) { std::fprintf(stderr, "agent: %s\n", text.c_str()); }

// What asks the server to end: SIGINT, SIGTERM, or a heartbeat that stopped. SIGINT, SIGTERM and SIGCHLD are blocked
// from the first of these on, and waited for instead.
class End {
 public:
  explicit End(int heartbeat_s) : heartbeat_(heartbeat_s) {
    sigemptyset(&set_);
    for (const int each : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set_, each);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  // Waits until a child ends, the end is asked for, or the time is over. Returns whether the end is asked for.
  bool Wait(std::chrono::milliseconds limit) {
    const timespec time{static_cast<time_t>(limit.count() / 1000), static_cast<long>(limit.count() % 1000 * 1'000'000)};
    const int signal = sigtimedwait(&set_, nullptr, &time);
    return signal == SIGINT || signal == SIGTERM || Asked();
  }
  // Does not wait; signals stay pending.
  bool Asked() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) || heartbeat_.Stopped();
  }
  // For a child: signals are as they were before, and signs of life are not its own to read.
  void Leave() const {
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  }

 private:
  sigset_t set_;
  sigset_t before_;
  Heartbeat heartbeat_;
};

// A new folder that goes with this object.
class WorkFolder {
 public:
  explicit WorkFolder(const std::string& base) : path_(base + "/edgedeploy-rpc-XXXXXX") {
    if (!mkdtemp(path_.data())) throw Failure(Code::kOutput, "cannot make a folder in " + base, SystemError());
  }
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Client {
  Connection connection;
  double limit_s;  // 0: none
};

// The client's greeting; nothing if it is none of ours. `secret` is what it must name.
std::optional<Client> Welcome(Connection connection, const std::string& secret, const std::string& key) {
  connection.SetTimeout(kHandshakeSeconds);
  if (connection.ReceiveInteger() != kMagic) return std::nullopt;
  std::istringstream words(connection.ReceiveText(kMaximumGreeting));
  std::string word;
  words >> word;
  if (word != "client:" + secret) {
    connection.SendInteger(kMismatch);
    Log("a client named another key");
    return std::nullopt;
  }
  double limit_s = 0;
  constexpr char kTimeout[] = "-timeout=";
  while (words >> word) {
    if (word.rfind(kTimeout, 0) == 0) limit_s = std::strtod(word.c_str() + std::strlen(kTimeout), nullptr);
  }
  connection.SendInteger(kMagic);
  connection.SendText("server:" + key);
  connection.SetForSession();
  return Client{std::move(connection), limit_s};
}

// Runs one session to its end. Returns false if the server was asked to end.
bool Serve(Client client, const std::string& base, int threads, End& end) {
  const WorkFolder folder(base);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Failure(Code::kOther, "cannot start a session", SystemError());
  if (child == 0) {
    // With the server, its sessions end; what a session starts ends with its process group.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    end.Leave();
    if (getppid() != parent || chdir(folder.path().c_str()) != 0) _exit(1);
    _exit(ServeSession(client.connection.get(), folder.path(), threads));
  }
  setpgid(child, child);
  const auto begin = Clock::now();
  const auto limit = std::chrono::duration<double>(client.limit_s);
  bool end_asked = false;
  bool over = false;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    over = client.limit_s > 0 && Clock::now() - begin >= limit;
    if (over || end_asked) {
      kill(-child, SIGKILL);
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    auto wait = std::chrono::milliseconds(1000);
    if (client.limit_s > 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - (Clock::now() - begin));
      wait = std::min(wait, std::max(left, std::chrono::milliseconds(1)));
    }
    end_asked = end.Wait(wait);
  }
  kill(-child, SIGKILL);  // what the session left running
  if (over) {
    Log("a session was ended: it took longer than its client allowed");
    ReturnTimeout(client.connection.get(), client.limit_s);
  } else if (WIFSIGNALED(status) && !end_asked) {
    Log(std::string("a session ended by signal: ") + strsignal(WTERMSIG(status)));
  }
  return !end_asked;
}

class Server {
 public:
  Server(const Arguments& arguments, Descriptor listener, int port)
      : listener_(std::move(listener)),
        key_(arguments.Text("key", "default")),
        base_(arguments.Text("work-dir", std::filesystem::temp_directory_path().string())),
        threads_(ChooseThreads(arguments.Integer("threads", 0, 1, 1'000'000), Processors())) {
    if (arguments.Has("tracker")) {
      const int announced = arguments.Integer("announce-port", port, 1, 65535);
      tracker_.emplace(arguments.Text("tracker"), key_, arguments.Text("custom-address"), announced);
    }
  }

  // Serves one session after another until it is to end.
  void Loop(End& end) {
    for (;;) {
      try {
        if (tracker_ && !tracker_->connected()) tracker_->Connect();
        if (tracker_) tracker_->Offer();
        std::optional<Client> client = NextClient(end);
        if (!client || !Serve(std::move(*client), base_, threads_, end)) return;
      } catch (const Failure& failure) {
        if (failure.code() != Code::kOther) throw;
        Log(std::string(failure.what()) + "; trying again");
        if (tracker_) tracker_->Disconnect();
        if (end.Wait(std::chrono::milliseconds(kPingMilliseconds))) return;
      }
    }
  }

  const std::string& key() const { return key_; }

 private:
  // The next client that knows the key; nothing if the server is to end.
  std::optional<Client> NextClient(End& end) {
    int unused = 0;
    for (;;) {
      // Signals stay pending while blocked: this wakes up often enough for them.
      pollfd waiting{listener_.get(), POLLIN, 0};
      bool arrived = false;
      for (int waited = 0; !arrived && waited < kPingMilliseconds; waited += 100) {
        arrived = poll(&waiting, 1, 100) > 0;
        if (end.Asked()) return std::nullopt;
      }
      if (!arrived) {
        if (!tracker_) continue;
        unused = tracker_->OfferWaits() ? 0 : unused + 1;
        if (unused > kUnusedPings) {
          Log("a client took the key and did not come");
          tracker_->Offer();
          unused = 0;
        }
        continue;
      }
      Connection connection(Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      if (!connection) continue;
      try {
        if (auto client = Welcome(std::move(connection), tracker_ ? tracker_->secret() : key_, key_)) return client;
      } catch (const Failure& failure) {
        Log(std::string("a client was turned away: ") + failure.what());
      }
    }
  }

  Descriptor listener_;
  std::string key_;
  std::string base_;
  int threads_;
  std::optional<Tracker> tracker_;
};

}  // namespace

Code RpcCommand(const Words& words) {
  const Arguments arguments(
      words, {"host", "port", "port-end", "tracker", "key", "custom-address", "announce-port", "work-dir", "threads",
              "heartbeat"});
  arguments.None();
  const std::string host = arguments.Text("host", "127.0.0.1");
  const int first = arguments.Integer("port", 9090, 0, 65535);
  const int last = first == 0 ? 0 : arguments.Integer("port-end", std::min(first + 109, 65535), first, 65535);
  End end(arguments.Integer("heartbeat", 0, 1, 86400));
  auto [listener, port] = Listen(host, first, last);
  Server server(arguments, std::move(listener), port);
  Json ready = Json::NewObject();
  ready.Set("ready", true).Set("host", host).Set("port", port).Set("key", server.key());
  ready.Set("tracker", arguments.Has("tracker") ? Json(arguments.Text("tracker")) : Json());
  Print(ready);
  server.Loop(end);
  return Code::kDone;
}

}  // namespace agent
