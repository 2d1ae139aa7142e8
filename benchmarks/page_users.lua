-- People with the what-if page open: each picks a set-up, drags one slider step by step as the page does (one question
-- at a time, at most one every 100 ms, and when answers take longer a gap of three times that), looks at the answer for a
-- while, and drags another.
local ffi = require("ffi")
ffi.cdef [[typedef struct { long s; long us; } when_t; int gettimeofday(when_t *, void *);]]
local clock = ffi.new("when_t")
local function now_ms()
  ffi.C.gettimeofday(clock, nil)
  return tonumber(clock.s) * 1000 + tonumber(clock.us) / 1000
end

-- The slider positions are those of the page, so two people at the same position ask the same question.
local workloads = {"llama3-8b", "llama3-70b", "gpt3-175b", "resnet50", "bert-large", "mixtral-8x7b", "t5-large", "gpt2-xl"}
local clusters = {"dgx-h100", "dgx-a100", "p5.48xlarge", "gb200-nvl72", "dgx-b200", "p4d.24xlarge"}
local sliders = {
  {"bandwidth", 80, function(i) return string.format("%.3g", 1e9 * 2 ^ (i / 8)) end},
  {"jitter", 60, function(i) return string.format("%.3f", i * 0.005) end},
  {"price", 80, function(i) return string.format("%.3g", 0.1 * 2 ^ (i / 8)) end},
  {"fixed", 100, function(i) return tostring(i * 10) end},
}
local steps_of_a_drag, pause_ms, step_ms = 20, tonumber(os.getenv("PAUSE_MS") or "2000"), tonumber(os.getenv("STEP_MS") or "100")

local users, turn, bad = {}, 0, 0
local asked_at, first, last, took = {}, 1, 0, 0 -- when the open questions were asked, and a running mean of answers

function setup(thread)
  thread:set("id", tostring(thread))
end

function init(args)
  math.randomseed(os.time() % 1000 + 7 * (tonumber(string.match(id, "%x+$"), 16) or 1) % 100003)
  for i = 1, tonumber(os.getenv("USERS_PER_THREAD") or "25") do
    users[i] = {left = math.random(0, steps_of_a_drag)}
  end
end

local function next_question(user)
  if user.left == 0 or user.slider == nil then
    user.workload, user.cluster = workloads[math.random(#workloads)], clusters[math.random(#clusters)]
    user.slider = sliders[math.random(#sliders)]
    user.at, user.way = math.random(0, user.slider[2]), math.random(0, 1) * 2 - 1
    user.left = steps_of_a_drag
  end
  user.left = user.left - 1
  user.at = user.at + user.way
  if user.at < 0 or user.at > user.slider[2] then
    user.way = -user.way
    user.at = user.at + 2 * user.way
  end
  return string.format('{"workload":"%s","cluster":"%s","k":"1..1024","regime":"strong","%s":%s}',
    user.workload, user.cluster, user.slider[1], user.slider[3](user.at))
end

function request()
  turn = turn % #users + 1
  last = last + 1
  asked_at[last] = now_ms()
  return wrk.format("POST", "/api/predict", {["Content-Type"] = "application/json", ["Accept-Encoding"] = "gzip", ["Host"] = "127.0.0.1"}, next_question(users[turn]))
end

function delay()
  local user = users[turn > 0 and turn or 1]
  if user.left == 0 then return pause_ms end
  return math.floor(math.max(step_ms, took > 60 and math.min(1500, 3 * took) or 0))
end

function response(status, headers, body)
  if first <= last then
    took = 0.9 * took + 0.1 * (now_ms() - asked_at[first])
    asked_at[first] = nil
    first = first + 1
  end
  if status ~= 200 then
    bad = bad + 1
    if bad <= 3 then print("status " .. status .. ": " .. string.sub(body, 1, 300)) end
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    '{"requests": %d, "seconds": %.1f, "p50_ms": %.1f, "p95_ms": %.1f, "p99_ms": %.1f, "max_ms": %.1f, "errors": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    latency:percentile(99) / 1e3, latency.max / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
