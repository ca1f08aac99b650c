// `agent rpc`: a server of TVM's RPC for tuning, alone or under a tracker (`tvm/rpc/server.py`).

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include "arguments.h"
#include "commands.h"
#include "machine.h"
#include "reception.h"
#include "rpc_session.h"
#include "socket.h"
#include "tracker.h"
#include "watch.h"

namespace agent {
namespace {

// tvm/rpc/base.py
constexpr int32_t kMismatch = kMagic + 2;

// How often the tracker is asked, and after how many answers an offer that was taken and not used is repeated.
constexpr std::chrono::milliseconds kPingTime{2000};
constexpr int kUnusedPings = 3;
// Of a client's own limit: three years. Clocks count no further than some hundred.
constexpr double kLongestSessionSeconds = 1e8;

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

// The client that a greeting is from; nothing if it is none of ours. `secret` is what it must name.
std::optional<Client> Welcome(Greeting greeting, const std::string& secret, const std::string& key) {
  std::istringstream words(greeting.text);
  std::string word;
  words >> word;
  if (word != "client:" + secret) {
    greeting.connection.Send(IntegerBytes(kMismatch));
    Log("a client named another key");
    return std::nullopt;
  }
  double limit_s = 0;
  constexpr char kTimeout[] = "-timeout=";
  while (words >> word) {
    if (word.rfind(kTimeout, 0) == 0) limit_s = std::strtod(word.c_str() + std::strlen(kTimeout), nullptr);
  }
  if (!(limit_s > 0)) limit_s = 0;
  const std::string name = "server:" + key;
  const std::string answer = IntegerBytes(kMagic) + IntegerBytes(static_cast<int32_t>(name.size())) + name;
  if (greeting.connection.Send(answer) != answer.size()) return std::nullopt;  // a new connection has room for this
  greeting.connection.SetForSession();
  return Client{std::move(greeting.connection), std::min(limit_s, kLongestSessionSeconds)};
}

// The process of a session. It ends with this object, as do the processes it started.
class Session {
 public:
  Session(const Connection& connection, const std::string& folder, int threads, const Watch& watch) {
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ < 0) throw Failure(Code::kOther, "cannot start a session", SystemError());
    if (child_ == 0) {
      // With the server, its sessions end; what a session starts ends with its process group.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setpgid(0, 0);
      watch.Leave();
      if (getppid() != parent || chdir(folder.c_str()) != 0) _exit(1);
      _exit(ServeSession(connection.get(), folder, threads));
    }
    setpgid(child_, child_);
  }
  ~Session() { Kill(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits for its end, which comes at the deadline at the latest. Returns whether it came before. Throws Ended.
  bool Wait(Watch& watch, Clock::time_point deadline) {
    std::vector<pollfd> none;
    while (waitpid(child_, &status_, WNOHANG) == 0) {
      if (Clock::now() >= deadline) {
        Kill();
        return false;
      }
      watch.Wait(none, deadline);
    }
    ended_ = true;
    Kill();
    return true;
  }
  int status() const { return status_; }

 private:
  void Kill() {
    kill(-child_, SIGKILL);
    if (ended_) return;
    kill(child_, SIGKILL);
    waitpid(child_, &status_, 0);
    ended_ = true;
  }

  pid_t child_;
  int status_ = 0;
  bool ended_ = false;
};

// Runs one session to its end. Throws Ended.
void Serve(Client client, const std::string& base, int threads, Watch& watch) {
  const WorkFolder folder(base);
  Session session(client.connection, folder.path(), threads, watch);
  const auto limit = std::chrono::duration<double>(client.limit_s);
  const Clock::time_point deadline =
      client.limit_s > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(limit) : Clock::time_point::max();
  if (!session.Wait(watch, deadline)) {
    Log("a session was ended: it took longer than its client allowed");
    client.connection.SetBlocking(false);
    ReturnTimeout(client.connection.get(), client.limit_s);
  } else if (WIFSIGNALED(session.status())) {
    Log(std::string("a session ended by signal: ") + strsignal(WTERMSIG(session.status())));
  }
}

class Server {
 public:
  Server(const Arguments& arguments, Descriptor listener, int port)
      : reception_(std::move(listener)),
        key_(arguments.Text("key", "default")),
        base_(arguments.Text("work-dir", std::filesystem::temp_directory_path().string())),
        threads_(ChooseThreads(arguments.Integer("threads", 0, 1, 1'000'000), Processors())) {
    if (arguments.Has("tracker")) {
      const int announced = arguments.Integer("announce-port", port, 1, 65535);
      tracker_.emplace(arguments.Text("tracker"), key_, arguments.Text("custom-address"), announced);
    }
  }

  // Serves one session after another, until Ended is thrown.
  [[noreturn]] void Loop(Watch& watch) {
    for (;;) {
      try {
        if (tracker_ && !tracker_->connected()) tracker_->Connect(watch);
        if (tracker_) tracker_->Offer(watch);
        Serve(NextClient(watch), base_, threads_, watch);
      } catch (const Failure& failure) {
        if (failure.code() != Code::kOther) throw;
        Log(std::string(failure.what()) + "; trying again");
        if (tracker_) tracker_->Disconnect();
        watch.Sleep(kPingTime);
      }
    }
  }

  const std::string& key() const { return key_; }

 private:
  // The next client that knows the key.
  Client NextClient(Watch& watch) {
    int unused = 0;
    for (Clock::time_point ping = Clock::now() + kPingTime;;) {
      if (std::optional<Greeting> greeting = reception_.Next(watch, ping)) {
        const std::string& secret = tracker_ ? tracker_->secret() : key_;
        if (auto client = Welcome(std::move(*greeting), secret, key_)) return std::move(*client);
      }
      if (Clock::now() < ping) continue;
      ping = Clock::now() + kPingTime;
      if (!tracker_) continue;
      unused = tracker_->OfferWaits(watch) ? 0 : unused + 1;
      if (unused > kUnusedPings) {
        Log("a client took the key and did not come");
        tracker_->Offer(watch);
        unused = 0;
      }
    }
  }

  Reception reception_;
  std::string key_;
  std::string base_;
  int threads_;
  std::optional<Tracker> tracker_;
};

}  // namespace

Code RpcCommand(const Words& words) {
  const Arguments arguments(words, {"host", "port", "port-end", "tracker", "key", "custom-address", "announce-port",
                                    "work-dir", "threads", "heartbeat"});
  arguments.None();
  const std::string host = arguments.Text("host", "127.0.0.1");
  const int first = arguments.Integer("port", 9090, 0, 65535);
  const int last = first == 0 ? 0 : arguments.Integer("port-end", std::min(first + 109, 65535), first, 65535);
  Watch watch(arguments.Integer("heartbeat", 0, 1, 86400));
  try {
    auto [listener, port] = Listen(host, first, last, watch);
    Server server(arguments, std::move(listener), port);
    const Json tracker = arguments.Has("tracker") ? Json(arguments.Text("tracker")) : Json();
    const Json key = server.key();
    Print(Json::NewObject({{"ready", true}, {"host", host}, {"port", port}, {"key", key}, {"tracker", tracker}}));
    server.Loop(watch);
  } catch (const Ended&) {
    return Code::kDone;
  }
}

}  // namespace agent
