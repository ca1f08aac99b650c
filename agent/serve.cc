// `agent serve`: one process that keeps a network loaded, and answers requests on standard input.

#include <unistd.h>

#include <memory>

#include "arguments.h"
#include "commands.h"
#include "files.h"
#include "machine.h"
#include "model.h"
#include "protocol.h"
#include "statistics.h"

namespace agent {
namespace {

constexpr int64_t kMaximumCount = 1'000'000;

class Server {
 public:
  Server(Model* model, const std::vector<Entry>& entries, Descriptor output)
      : first_(model), model_(model), entries_(entries), output_(std::move(output)), others_(entries.size()) {}

  void Greet(const Manifest& manifest, int threads, double load_ms) {
    Send(Greeting(manifest, threads, load_ms, model_->Device()));
  }

  // Serves until the input ends or a request says so.
  void Loop() {
    for (;;) {
      Request request;
      try {
        if (!reader_->Next(&request)) return;
      } catch (const JsonError& error) {
        // Nobody can tell where the next request begins.
        Refuse(request.id, Code::kInput, std::string("invalid request: ") + error.what());
        throw Failure(Code::kInput, "invalid request", error.what());
      } catch (const Failure& failure) {
        Refuse(request.id, failure.code(), failure.what());
        throw;
      }
      ++requests_;
      if (!Answer(request.body, request.id, request.bytes)) return;
    }
  }

 private:
  // Reads the request's bytes and replies. Returns whether there is more to come.
  bool Answer(const Json& request, const Json& id, int64_t bytes) {
    int64_t unread = bytes;
    try {
      const std::string& command = request.at("command").text();
      if (const Work work = Inference(command)) {
        Enter(request);
        RequireInputBytes(BytesOf(model_->inputs()), bytes);
        for (size_t i = 0; i < model_->inputs().size(); ++i) {
          reader_->Bytes(model_->Input(i), model_->inputs()[i].bytes);
        }
        unread = 0;
        (this->*work)(request, id);
        return true;
      }
      Discard(&unread);
      if (command == "status") {
        Json reply = Reply(id);
        Send(reply.Set("requests", requests_).Set("memory", ProcessMemory()).Set("temperature_c", Temperature()));
        return true;
      }
      if (command == "quit") {
        Send(Reply(id));
        return false;
      }
      throw Failure(Code::kInput, "unknown command '" + command + "'");
    } catch (const JsonError& error) {
      Discard(&unread);
      Refuse(id, Code::kInput, error.what());
    } catch (const Failure& failure) {
      if (failure.code() == Code::kOutput) throw;
      Discard(&unread);
      Refuse(id, failure.code(), failure.what());
    }
    return true;
  }

  // Turns to the entry that a request names, whose inputs and workspace are there from its first request on.
  void Enter(const Json& request) {
    const Json* given = request.find("entry");
    const int64_t entry = given ? given->integer() : 0;
    if (entry < 0 || entry >= static_cast<int64_t>(entries_.size())) throw JsonError("entry is out of range");
    const auto place = static_cast<size_t>(entry);
    if (place > 0 && !others_[place]) others_[place] = std::make_unique<Model>(*first_, entries_[place]);
    model_ = place > 0 ? others_[place].get() : first_;
  }

  using Work = void (Server::*)(const Json& request, const Json& id);
  // What answers a command that comes with inputs; null for others.
  static Work Inference(const std::string& command) {
    if (command == "run") return &Server::Run;
    if (command == "measure") return &Server::Measured;
    if (command == "measure-end-to-end") return &Server::MeasuredEndToEnd;
    if (command == "profile") return &Server::Profiled;
    return nullptr;
  }

  void Run(const Json&, const Json& id) {
    const auto before = MillisecondsSinceStart();
    model_->Run();
    const double ms = MillisecondsSinceStart() - before;
    Send(Reply(id).Set("ms", ms).Set("bytes", Json(BytesOf(model_->outputs()))));
    for (size_t i = 0; i < model_->outputs().size(); ++i) {
      WriteAll(output_.get(), model_->Output(i), model_->outputs()[i].bytes, "a reply");
    }
  }

  void Measured(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int number = Count(request, "number", 1, 1);
    Json reply = Reply(id);
    AddStatistics(Measure(model_, repeat, number, Count(request, "warmup", 0, 0)), &reply);
    Send(reply);
  }

  void MeasuredEndToEnd(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    const int warmup = Count(request, "warmup", 0, 0);
    std::vector<double> runs_ms;
    std::vector<double> kernels_ms;
    for (int i = 0; i < warmup; ++i) model_->EndToEndRun();
    for (int i = 0; i < repeat; ++i) {
      const EndToEnd times = model_->EndToEndRun();
      runs_ms.push_back(times.ms);
      if (times.kernels_ms) kernels_ms.push_back(*times.kernels_ms);
    }
    Json reply = Reply(id);
    AddStatistics(runs_ms, &reply);
    if (!kernels_ms.empty()) reply.Set("kernels_ms", Json(Json::Array(kernels_ms.begin(), kernels_ms.end())));
    Send(reply);
  }

  void Profiled(const Json& request, const Json& id) {
    const int repeat = Count(request, "repeat", 1, 1);
    Json functions = Json::NewObject();
    for (const auto& [name, times_ms] : model_->FunctionTimes(repeat, Count(request, "warmup", 0, 0))) {
      functions.Set(name, Json(Json::Array(times_ms.begin(), times_ms.end())));
    }
    Send(Reply(id).Set("functions", functions));
  }

  static int Count(const Json& request, const char* name, int64_t otherwise, int64_t least) {
    const Json* given = request.find(name);
    const int64_t value = given ? given->integer() : otherwise;
    if (value < least || value > kMaximumCount) throw JsonError(std::string(name) + " is out of range");
    return static_cast<int>(value);
  }

  void Refuse(const Json& id, Code code, const std::string& error) { Send(Refusal(id, code, error)); }
  void Send(const Json& reply) { agent::Send(output_.get(), reply); }
  void Discard(int64_t* unread) {
    const auto size = static_cast<size_t>(*unread);
    *unread = 0;
    reader_->Bytes(nullptr, size);
  }

  Model* first_;
  Model* model_;  // of the entry that is in use
  const std::vector<Entry>& entries_;
  Descriptor output_;
  std::vector<std::unique_ptr<Model>> others_;  // of the first there is none
  std::unique_ptr<RequestReader> reader_ = std::make_unique<RequestReader>(STDIN_FILENO, "standard input");
  int64_t requests_ = 0;
};

}  // namespace

Code ServeCommand(const Words& words) {
  const Arguments arguments(words, {"threads"});
  const int asked = arguments.Integer("threads", 0, 1, static_cast<int>(kMaximumCount));
  const Package package(arguments.Only("package"));
  const int threads = ChooseThreads(asked, package.manifest().threads);
  Descriptor output = TakeStandardOutput();
  EndWithReader(output.get());
  const double before_ms = MillisecondsSinceStart();
  Model model(package, threads);
  Server server(&model, package.manifest().entries, std::move(output));
  server.Greet(package.manifest(), threads, MillisecondsSinceStart() - before_ms);
  server.Loop();
  return Code::kDone;
}

}  // namespace agent
