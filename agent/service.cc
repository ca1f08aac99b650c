// `agent service`: a network that follows its releases, for all programs of a user, through a Unix socket.

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "arguments.h"
#include "camera/camera.h"
#include "commands.h"
#include "event_log.h"
#include "machine.h"
#include "protocol.h"
#include "served_network.h"
#include "sightings.h"
#include "unix_socket.h"
#include "watch.h"

namespace agent {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostClients = 64;
// How often the service looks for a new release while nobody asks for anything.
constexpr milliseconds kLook{1000};
// How long clients may take to fetch their last replies when it ends.
constexpr milliseconds kFarewell{10'000};
// A client that takes nothing of a reply for so long is let go.
constexpr time_t kReplySeconds = 60;

// Of a client that is not welcomed nobody waits for anything: what does not fit into its socket is left.
constexpr int kMessageFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
// While the system gives no further descriptor, those who knock wait so long.
constexpr milliseconds kBreath{100};

constexpr int kDefaultLogBytes = 1 << 20;
// What all clients' requests and replies may take together: a part of the machine's memory, within bounds.
constexpr int64_t kMemoryPart = 4;
// How much of a request there is room for before any of it has come.
constexpr size_t kFirstBytes = 1 << 16;
constexpr int64_t kLeastRequestBytes = int64_t{1} << 26;
constexpr int64_t kMostRequestBytes = int64_t{1} << 30;

constexpr char kKnown[] = "a service has run, detect, share, status, watch and quit";

// What a client has.
struct Client {
  int socket;
  SharingReader reader;
  std::optional<SharedMemory> memory;
};

// Memory that clients take together.
class Budget {
 public:
  explicit Budget(int64_t bytes) : left_(bytes) {}
  // Failure(kOther) if others hold too much.
  void Take(int64_t bytes) {
    if (left_.fetch_sub(bytes) >= bytes) return;
    Return(bytes);
    throw Failure(Code::kOther, "the requests of all clients together take too much memory", "ask again later");
  }
  void Return(int64_t bytes) { left_ += bytes; }

 private:
  std::atomic<int64_t> left_;
};

// Bytes that are sent or received, in memory that grows as they come.
class Buffer {
 public:
  explicit Buffer(Budget* budget) : budget_(budget) {}
  ~Buffer() {
    std::free(data_);
    budget_->Return(static_cast<int64_t>(size_));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Room for further bytes, which is returned. Failure(kOther) if the budget has not so much.
  char* Grow(size_t bytes) {
    budget_->Take(static_cast<int64_t>(bytes));
    auto* grown = static_cast<char*>(std::realloc(data_, size_ + bytes));
    if (!grown && bytes > 0) {
      budget_->Return(static_cast<int64_t>(bytes));
      throw std::bad_alloc();
    }
    data_ = grown;
    size_ += bytes;
    return data_ + size_ - bytes;
  }

 private:
  Budget* budget_;
  char* data_ = nullptr;
  size_t size_ = 0;
};

// A reply, and the bytes that follow it.
struct Answer {
  explicit Answer(Budget* budget) : content(budget) {}

  Json reply;
  Buffer content;
  size_t bytes = 0;  // of the content, those that are sent
  bool goes_on = true;
  std::optional<bool> watches;  // with images or without
};

// What a request says of a frame but its pixels. JsonError and Failure(kInput) for one that cannot be.
CameraFrame RequestedFrame(const Json& request) {
  const auto side = [&](const char* name) {
    const int64_t value = request.at(name).integer();
    if (value < 1 || value > kLongestSide) throw JsonError(std::string(name) + " is not the side of a frame");
    return static_cast<int>(value);
  };
  const std::string& format = request.at("format").text();
  const std::optional<PixelFormat> pixels = PixelFormatOf(format);
  if (!pixels) throw JsonError("frames of '" + format + "' are not known here");
  const int64_t stride = NumberOf(request, "stride", 0);
  if (stride < 0) throw JsonError("stride is below zero");
  return {nullptr, side("height"), side("width"), static_cast<size_t>(stride), *pixels};
}

class Service {
 public:
  Service(const std::string& model, int threads, int64_t request_bytes, EventLog* log)
      : log_(log), network_(model, threads, log), budget_(request_bytes) {}

  // What the log says when the service is ready.
  Json Describing() {
    Json about = network_.Describing();
    return camera_.empty() ? about : about.Set("camera", camera_);
  }
  ServedNetwork& network() { return network_; }

  // Looks at a camera's images from now on, in a thread of its own, until the process is asked to end. Failure(kInput)
  // if the network is not one for images.
  void Watch(std::shared_ptr<Camera> camera) {
    network_.RequireDetector();
    camera_ = camera->name();
    watcher_ = std::thread([this, source = SourceOfCamera(std::move(camera))] { Watching(source); });
  }
  // Whether the camera gives no further image.
  bool IsBlind() const { return is_blind_.load(); }
  // Waits until that has ended; whoever watches is told nothing more.
  void WatchNoMore() {
    if (watcher_.joinable()) watcher_.join();
    sightings_.End();
  }

  // A thread for a client, unless there are too many clients, or the system gives no further thread.
  void Welcome(Descriptor client) {
    const std::lock_guard<std::mutex> lock(clients_mutex_);
    const int64_t number = welcomed_ + 1;
    const int socket = client.get();
    try {
      if (clients_.size() >= kMostClients) {
        throw Failure(Code::kOther, "there are " + std::to_string(kMostClients) + " clients");
      }
      clients_[number] = socket;
      std::thread([this, number, socket] {
        const Descriptor owned(socket);
        Serve(number, socket);
      }).detach();
      client.Release();
      welcomed_ = number;
    } catch (const std::exception& error) {
      clients_.erase(number);
      TurnAway(client.get(), error.what());
    }
  }

  // Takes no further request; those that were sent are answered. Returns whether that is done by the deadline.
  bool Farewell(Clock::time_point deadline) {
    std::unique_lock<std::mutex> lock(clients_mutex_);
    for (const auto& [number, socket] : clients_) shutdown(socket, SHUT_RD);
    return gone_.wait_until(lock, deadline, [this] { return clients_.empty(); });
  }

  int64_t requests() const { return requests_.load(); }

 private:
  // Tells a client that it is not welcome, without waiting for it, whoever it is and whether it is still there.
  void TurnAway(int socket, const char* error) {
    log_->Write("turned_away", Json::NewObject({{"error", error}}));
    const std::string line = Refusal(nullptr, Code::kOther, error).Dump() + "\n";
    send(socket, line.data(), line.size(), kMessageFlags);
  }

  void Serve(int64_t number, int socket) {
    try {
      Converse(number, socket);
    } catch (const std::exception&) {
      // There may be no memory for a log entry either.
    }
    const std::lock_guard<std::mutex> lock(clients_mutex_);
    clients_.erase(number);
    gone_.notify_all();
  }

  void Converse(int64_t number, int socket) {
    int64_t answered = 0;
    try {
      const timeval limit{kReplySeconds, 0};
      setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
      log_->Write("connected", Json::NewObject({{"client", number}}));
      Greet(socket);
      Client client{socket, {socket, "the socket"}, std::nullopt};
      for (;;) {
        Request request;
        try {
          if (!client.reader.Next(&request)) break;
        } catch (const std::exception& error) {
          // Nobody can tell where the next request begins.
          Send(socket, Refusal(request.id, Code::kInput, std::string("invalid request: ") + error.what()));
          break;
        }
        const bool goes_on = Respond(&client, request);
        ++answered;
        ++requests_;
        if (!goes_on) break;
      }
    } catch (const std::exception& error) {
      log_->Write("lost", Json::NewObject({{"client", number}, {"error", error.what()}}));
    }
    log_->Write("disconnected", Json::NewObject({{"client", number}, {"requests", answered}}));
  }

  void Greet(int socket) {
    Json greeting = network_.Greeting();
    Send(socket, camera_.empty() ? greeting : greeting.Set("camera", camera_));
  }

  void Watching(const Source& source) {
    try {
      int number = 0;
      while (std::optional<Shot> shot = source()) {
        Json about = network_.See(*shot, number);
        number = number == INT_MAX ? 0 : number + 1;
        sightings_.Put(std::make_shared<const Sighting>(std::move(about), std::move(shot->picture)));
      }
    } catch (const std::exception& error) {
      log_->Write("failed", Json::NewObject({{"error", error.what()}}));
    }
    is_blind_ = true;
  }

  // Sends what the camera sees until the client is gone, which is told by Failure(kOutput), or the camera ends.
  void Show(int socket, bool images) {
    std::shared_ptr<const Sighting> seen;
    while ((seen = sightings_.Next(seen))) {
      Json about = seen->about();
      const std::string jpeg = images ? seen->Jpeg() : "";
      if (images) about.Set("bytes", Json::Size(jpeg.size()));
      Send(socket, about);
      WriteAll(socket, jpeg.data(), jpeg.size(), "an image");
    }
  }

  // Reads the request's bytes and replies. Returns whether there is more to come. Throws where the client is lost.
  bool Respond(Client* client, const Request& request) {
    Answer answer(&budget_);
    try {
      Do(request.body.at("command").text(), client, request, &answer);
    } catch (const JsonError& error) {
      answer.reply = Refusal(request.id, Code::kInput, error.what());
    } catch (const Failure& failure) {
      answer.reply = Refusal(request.id, failure.code(), failure.what());
      if (failure.code() != Code::kInput) log_->Write("failed", Json::NewObject({{"error", failure.what()}}));
    }
    client->reader.Discard();
    Send(client->socket, answer.reply);
    WriteAll(client->socket, answer.content.data(), answer.bytes, "a reply");
    if (answer.watches) Show(client->socket, *answer.watches);
    return answer.goes_on && !answer.watches;
  }

  // Where it throws, no more than the reply is different.
  void Do(const std::string& command, Client* client, const Request& request, Answer* answer) {
    answer->reply = Reply(request.id);
    if (command == "run") {
      Run(client, request, answer);
    } else if (command == "detect") {
      CameraFrame frame = RequestedFrame(request.body);
      Buffer sent(&budget_);
      frame.pixels = Inputs(client, request, static_cast<int64_t>(FrameBytes(frame)), &sent);
      network_.Detect(frame, &answer->reply);
    } else if (command == "share") {
      client->memory.emplace(client->reader.TakeDescriptor(), request.body.at("size").integer());
    } else if (command == "status") {
      answer->reply.Set("requests", requests()).Set("release", network_.release());
      answer->reply.Set("memory", ProcessMemory()).Set("temperature_c", Temperature());
    } else if (command == "watch") {
      if (camera_.empty()) throw Failure(Code::kInput, "this service has no camera");
      const Json* images = request.body.find("images");
      answer->watches = images && images->truth();
    } else if (command == "quit") {
      answer->goes_on = false;
    } else {
      throw Failure(Code::kInput, "unknown command '" + command + "'", kKnown);
    }
  }

  void Run(Client* client, const Request& request, Answer* answer) {
    const int64_t entry = NumberOf(request.body, "entry", 0);
    const int64_t bytes = network_.SizesOf(entry).inputs;
    Buffer sent(&budget_);
    const uint8_t* values = Inputs(client, request, bytes, &sent);
    const int64_t room = network_.SizesOf(entry).outputs;
    if (const Json* place = request.body.find("outputs_at")) {
      network_.Run(entry, values, bytes, MemoryOf(*client).At(place->integer(), room), room, &answer->reply);
      return;
    }
    char* const outputs = answer->content.Grow(static_cast<size_t>(room));
    const int64_t written = network_.Run(entry, values, bytes, outputs, room, &answer->reply);
    answer->reply.Set("bytes", written);
    answer->bytes = static_cast<size_t>(written);
  }

  // Where `bytes` bytes of inputs lie: in shared memory, if the request says so, or in `sent`, where they are read to.
  static const uint8_t* Inputs(Client* client, const Request& request, int64_t bytes, Buffer* sent) {
    if (const Json* place = request.body.find("at")) return MemoryOf(*client).At(place->integer(), bytes);
    RequireInputBytes(bytes, request.bytes);
    while (sent->size() < static_cast<size_t>(bytes)) {
      const size_t next = std::min(static_cast<size_t>(bytes) - sent->size(), std::max(sent->size(), kFirstBytes));
      client->reader.Bytes(sent->Grow(next), next);
    }
    return reinterpret_cast<const uint8_t*>(sent->data());
  }

  static const SharedMemory& MemoryOf(const Client& client) {
    if (!client.memory) throw Failure(Code::kInput, "no memory was shared", "the command 'share' comes before");
    return *client.memory;
  }

  EventLog* log_;
  ServedNetwork network_;
  Budget budget_;

  std::string camera_;  // empty if there is none
  std::thread watcher_;
  std::atomic<bool> is_blind_{false};
  Sightings sightings_;

  std::mutex clients_mutex_;
  std::condition_variable gone_;
  std::map<int64_t, int> clients_;  // their sockets
  int64_t welcomed_ = 0;
  std::atomic<int64_t> requests_{0};
};

int64_t DefaultRequestBytes() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::clamp(machine / kMemoryPart, kLeastRequestBytes, kMostRequestBytes);
}

// Welcomes clients until the camera has no further image. Throws Ended.
void Loop(Service* service, const UnixListener& listener, const Notifier& notifier, Watch& watch) {
  milliseconds look = kLook;
  if (notifier.watchdog()) look = std::min(look, *notifier.watchdog() / 2);
  while (!service->IsBlind()) {
    if (watch.Wait(listener.get(), POLLIN, Clock::now() + look)) {
      Descriptor client = listener.Accept();
      if (client) {
        service->Welcome(std::move(client));
      } else {
        watch.Sleep(kBreath);
      }
    }
    service->network().LookForRelease();
    // A network that hangs is to be ended by systemd, which then hears nothing.
    if (notifier.watchdog() && !service->network().Hangs(*notifier.watchdog())) notifier.Tell("WATCHDOG=1");
  }
}

}  // namespace

Code ServiceCommand(const Words& words) {
  const Arguments arguments(words, {"socket", "threads", "log", "log-bytes", "request-bytes"}, {}, {"camera"});
  const std::string& model = arguments.Only("model");
  const int threads = arguments.Integer("threads", 0, 1, 1 << 20);
  const int request_bytes = arguments.Integer("request-bytes", static_cast<int>(DefaultRequestBytes()), 1,
                                              static_cast<int>(kMostRequestBytes));
  const int log_bytes = arguments.Integer("log-bytes", kDefaultLogBytes, 1 << 12, 1 << 30);
  if (!arguments.Has("socket")) throw Failure(Code::kUsage, "--socket PATH is missing");

  Watch watch(0);  // before there are other threads
  Descriptor output = TakeStandardOutput();
  EventLog log = arguments.Has("log") ? EventLog(arguments.Text("log"), static_cast<uint64_t>(log_bytes))
                                      : EventLog(std::move(output));
  const Notifier notifier;
  // Clients' threads may outlive a farewell that takes too long: the process ends without taking it apart.
  auto* service = new Service(model, threads, request_bytes, &log);
  if (arguments.Has("camera")) {
    CameraWish wish;
    wish.jpeg = true;
    service->Watch(OpenCamera(arguments.Text("camera"), wish));
  }
  UnixListener listener(arguments.Text("socket"));
  log.Write("ready", service->Describing().Set("socket", arguments.Text("socket")));
  notifier.Tell("READY=1");
  Code code = Code::kInput;  // the camera has no further image
  try {
    Loop(service, listener, notifier, watch);
  } catch (const Ended&) {
    code = Code::kDone;
  }
  notifier.Tell("STOPPING=1");
  listener.Close();
  service->WatchNoMore();
  const bool done = service->Farewell(Clock::now() + kFarewell);
  log.Write("ended", Json::NewObject({{"requests", service->requests()}}));
  if (!done) _exit(static_cast<int>(code));
  delete service;
  return code;
}

}  // namespace agent
