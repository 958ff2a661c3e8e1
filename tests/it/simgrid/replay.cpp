// Replays programs in SimGrid: reads actors with what each does, and prints when the last is done.
//
//   hosts N                          hosts, each with a link out and a link in, which meet in a switch
//   rate R                           of every link (bytes per second)
//   actor HOST                       what follows, it does
//   compute T                        for T seconds
//   signal L, wait L                 all may go on that wait for latch L, now or later
//   carry T B TO                     sleep T, send B bytes to a host, whatever that does
//   ring NAME NEXT PREVIOUS K T B    sleep T, then K rounds: send B bytes to one, get as many from another
//   exchange NAME T B MEMBER...      sleep T, send B bytes to each of the others, get as many
//   message NAME T B FROM TO...      sleep T, send B bytes to some, get as many from one, if it is another

#include <simgrid/s4u.hpp>

#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

static std::map<std::string, sg4::SemaphorePtr> latches;
static std::vector<sg4::Host*> hosts;
static double last = 0;

static sg4::SemaphorePtr latch(const std::string& name) {
  auto& it = latches[name];
  if (!it) it = sg4::Semaphore::create(0);
  return it;
}

static sg4::Mailbox* box(const std::string& name, int from, int to) {
  return sg4::Mailbox::by_name(name + "." + std::to_string(from) + "." + std::to_string(to));
}

// Gets from some and sends to some, at once.
static void exchange(const std::string& name, int own, const std::vector<int>& from, const std::vector<int>& to, double bytes) {
  static char nothing;
  std::vector<char*> gotten(from.size());
  std::vector<sg4::CommPtr> all;
  for (size_t i = 0; i < from.size(); i++) all.push_back(box(name, from[i], own)->get_async<char>(&gotten[i]));
  for (int it : to) all.push_back(box(name, own, it)->put_async(&nothing, static_cast<uint64_t>(bytes)));
  for (auto& it : all) it->wait();
}

static void actor(int host, std::vector<std::string> lines) {
  for (const auto& line : lines) {
    std::istringstream in(line);
    std::string what, name;
    in >> what;
    if (what == "compute") {
      double time;
      in >> time;
      sg4::this_actor::execute(time);
    } else if (what == "signal") {
      in >> name;
      latch(name)->release();
    } else if (what == "wait") {
      in >> name;
      // Whoever comes through lets the next one through.
      latch(name)->acquire();
      latch(name)->release();
    } else if (what == "carry") {
      double time, bytes;
      int to;
      in >> time >> bytes >> to;
      sg4::this_actor::sleep_for(time);
      if (bytes >= 1) sg4::Comm::sendto(hosts[host], hosts[to], static_cast<uint64_t>(bytes));
    } else if (what == "ring") {
      int next, previous, rounds;
      double time, bytes;
      in >> name >> next >> previous >> rounds >> time >> bytes;
      sg4::this_actor::sleep_for(time);
      for (int i = 0; i < rounds; i++) exchange(name, host, {previous}, {next}, bytes);
    } else if (what == "exchange" || what == "message") {
      double time, bytes;
      int rank;
      in >> name >> time >> bytes;
      std::vector<int> from, to;
      if (what == "message") {
        in >> rank;
        if (rank != host) from.push_back(rank);
      }
      while (in >> rank) {
        if (rank == host) continue;
        to.push_back(rank);
        if (what == "exchange") from.push_back(rank);
      }
      sg4::this_actor::sleep_for(time);
      exchange(name, host, from, to, bytes);
    } else {
      std::cerr << "unknown: " << line << std::endl;
      std::exit(2);
    }
  }
  last = std::max(last, sg4::Engine::get_clock());
}

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  sg4::Engine::set_config("network/model:CM02");
  sg4::Engine::set_config("network/crosstraffic:0");
  std::ifstream file(argv[1]);
  auto* zone = sg4::create_full_zone("zone");
  int count = 0;
  double rate = 0;
  std::vector<std::pair<int, std::vector<std::string>>> actors;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "hosts") {
      in >> count;
    } else if (what == "rate") {
      in >> rate;
    } else if (what == "actor") {
      int host;
      in >> host;
      actors.push_back({host, {}});
    } else {
      actors.back().second.push_back(line);
    }
  }
  std::vector<sg4::Link*> out, in;
  for (int i = 0; i < count; i++) {
    auto* host = zone->create_host("h" + std::to_string(i), 1.0);
    // One for each stream.
    host->set_core_count(3);
    host->seal();
    hosts.push_back(host);
    auto link = [&](const char* side) {
      auto* it = zone->create_link(side + std::to_string(i), rate);
      it->set_latency(0);
      it->seal();
      return it;
    };
    out.push_back(link("out"));
    in.push_back(link("in"));
  }
  for (int i = 0; i < count; i++)
    for (int j = 0; j < count; j++)
      if (i != j)
        zone->add_route(hosts[i]->get_netpoint(), hosts[j]->get_netpoint(), nullptr, nullptr,
                        {sg4::LinkInRoute(out[i]), sg4::LinkInRoute(in[j])}, false);
  zone->seal();
  for (auto& it : actors) sg4::Actor::create("a", hosts[it.first], actor, it.first, it.second);
  engine.run();
  std::cout.precision(17);
  std::cout << last << std::endl;
}
