-- experiment - two or more arms of the same traffic that differ in knobs, and what came of each. One experiment runs at a time. Arms share
-- the stored answers; they differ in what may be done with them. A request's arm is a function of the recorded salt and of what it is
-- split by, so it stays on every gateway and over restarts. The first arm is the one the others are compared with.
--
-- Keys behind the tag: {ns}:experiment         hash  of the running one: name, json (what gateways read), "arm NAME/ARM" -> share
--                      {ns}:experiment:<name>  hash  json, state, started_ms, stopped_ms, who, note, version and stop_version (of the settings)
--                      {ns}:experiments        zset  names by start
--                      {ns}:arm:<name>/<arm>   hash  counters (counters.lua)
--
-- deja_experiment_start KEYS {ns}:config  ARGV name ARM arm [PERCENT p] [knob value]... ARM arm ... [SPLIT request|user|tenant]
--                       [IN namespace] [SALT text] [BY who] [NOTE text]
--     Shares are equal where no PERCENT is given; a rest takes no part. SPLIT user: requests whose body has no "user" take no part.
--     Reply: lines. Errors: ERR deja_experiment_start: ...; wrong knobs as in deja_config_set.
-- deja_experiment_stop KEYS {ns}:config  ARGV [BY who] [NOTE text]
--     Ends it: every request goes by the settings again. The report stays. Reply: the report.
-- deja_experiment_report KEYS {ns}:config  ARGV [name | list] [JSON]
--     Of the running or last one. Reply: a table, what is significant at 95 % (two-sided; with more than two arms at 95 % for all
--     comparisons together, Bonferroni), and a verdict in words.

do
local ARMS_MAX = 8
local REQUESTS_LEAST = 100 -- of an arm, for a verdict

local function plain_name(text)
  return text ~= nil and #text <= 40 and string.match(text, '^[%w._-]+$') ~= nil
end

local WORDS = {ARM = true, PERCENT = true, SPLIT = true, IN = true, SALT = true, BY = true, NOTE = true}

-- One WORD value of the definition into x.
local function start_word(x, word, value)
  local arm = x.arms[#x.arms]
  if value == nil then return word .. ' needs a value after it' end
  if word == 'ARM' then
    if not plain_name(value) then return 'an arm is called by 1 to 40 letters, digits, . _ -, not "' .. clean(value, 40) .. '"' end
    for _, other in ipairs(x.arms) do
      if other.name == value then return 'two arms are called ' .. value end
    end
    x.arms[#x.arms + 1] = {name = value, knobs = {}}
  elseif word == 'PERCENT' then
    local p = tonumber(value)
    if not arm then return 'PERCENT belongs after ARM' end
    if not p or p ~= p or p <= 0 or p > 100 then return 'PERCENT may be a number above 0 up to 100, not "' .. clean(value, 40) .. '"' end
    arm.percent = p
  elseif word == 'SPLIT' then
    if value ~= 'request' and value ~= 'user' and value ~= 'tenant' then
      return 'SPLIT may be request, user or tenant, not "' .. clean(value, 40) .. '"'
    end
    x.split = value
  elseif word == 'IN' then
    if not string.match(value, '^[%w._:-]+$') or #value > 64 then return 'IN needs a namespace: 1 to 64 letters, digits, . _ - :' end
    x.ns = value
  elseif word == 'SALT' then
    if not plain_name(value) then return 'SALT may be 1 to 40 letters, digits, . _ -' end
    x.salt = value
  else
    x[word] = value
  end
end

local function start_knob(x, name, value)
  local arm = x.arms[#x.arms]
  if not arm then return 'begin with the arms, as in: ARM a ARM b threshold_en 0.97' end
  local k, problem = knob_named(name)
  if not k then return problem end
  if k.type == 'text' then return k.name .. ' is no knob of an arm: it is set for all' end
  if k.family == 'limit' then return k.name .. ' is no knob of an arm: limits hold for tenants and models' end
  if value == nil then return name .. ' needs a value after it' end
  value, problem = knob_value(k, value)
  if not value then return problem end
  arm.knobs[#arm.knobs + 1] = {k.name, value}
end

local function arms_problem(x)
  if #x.arms < 2 or #x.arms > ARMS_MAX then return 'an experiment has 2 to ' .. ARMS_MAX .. ' arms, not ' .. #x.arms end
  local given, without = 0, 0
  for _, arm in ipairs(x.arms) do
    given = given + (arm.percent or 0)
    without = without + (arm.percent and 0 or 1)
  end
  if given > 100.001 or (without > 0 and given > 99.999) then return 'the shares sum up to more than 100 %' end
  for _, arm in ipairs(x.arms) do
    arm.percent = arm.percent or (100 - given) / without
  end
end

local function start_read(args)
  local x, i, problem = {name = args[1], split = 'request', ns = '', arms = {}}, 2, nil
  if not plain_name(x.name) then return nil, 'an experiment is called by 1 to 40 letters, digits, . _ -' end
  while i <= #args and not problem do
    local word = string.upper(args[i])
    if WORDS[word] then
      problem = start_word(x, word, args[i + 1])
    else
      problem = start_knob(x, args[i], args[i + 1])
    end
    i = i + 2
  end
  problem = problem or arms_problem(x)
  if problem then return nil, problem end
  return x
end

local function arms_json(x)
  local arms = {}
  for _, arm in ipairs(x.arms) do
    local knobs_ = {}
    for _, k in ipairs(arm.knobs) do
      knobs_[#knobs_ + 1], knobs_[#knobs_ + 2] = k[1], k[2]
    end
    arms[#arms + 1] = json_object({'name', arm.name, 'percent', arm.percent, 'knobs', {json = json_object(knobs_)}})
  end
  return json_list(arms)
end

local function knobs_text(arm)
  local out = {}
  for _, k in ipairs(arm.knobs) do
    out[#out + 1] = k[1] .. ' ' .. k[2]
  end
  return #out > 0 and table.concat(out, ', ') or 'as set for all'
end

local function deja_experiment_start(keys, args)
  local tag, problem = space_of(keys, 'deja_experiment_start')
  if not tag then return bad(problem) end
  local space, x = '{' .. tag .. '}:', nil
  x, problem = start_read(args)
  if not x then return bad('deja_experiment_start: ' .. problem) end
  local running = redis.call('HGET', space .. 'experiment', 'name')
  if running then return bad('deja_experiment_start: ' .. running .. ' is running; stop it first (deja_experiment_stop)') end
  if redis.call('EXISTS', space .. 'experiment:' .. x.name) == 1 then
    return bad('deja_experiment_start: there was an experiment ' .. x.name .. ' already; take another name')
  end
  local key, at = space .. 'config', now_ms()
  x.salt = x.salt or string.sub(redis.sha1hex(x.name .. ':' .. at .. ':' .. config_version(key)), 1, 16)
  local json = json_object({'name', x.name, 'salt', x.salt, 'ns', x.ns, 'split', x.split, 'started_ms', at, 'arms', {json = arms_json(x)}})
  local version = redis.call('HINCRBY', key, 'version', 1)
  redis.call('HSET', space .. 'experiment', 'name', x.name, 'json', json)
  redis.call('HSET', space .. 'experiment:' .. x.name, 'json', json, 'state', 'running', 'started_ms', at, 'who', clean(x.BY or 'redis-cli', 64),
             'note', clean(x.NOTE or '', 200), 'version', version)
  redis.call('ZADD', space .. 'experiments', at, x.name)
  config_write(key, {version = version, op = 'experiment', who = x.BY, scope = 'global', name = 'experiment ' .. x.name, old = '', new = 'started',
                     note = x.NOTE})
  local out = {'version ' .. version .. ': experiment ' .. x.name .. ' runs, split by ' .. x.split .. ', salt ' .. x.salt ..
               (x.ns ~= '' and ', namespace ' .. x.ns or '')}
  for _, arm in ipairs(x.arms) do
    redis.call('HSET', space .. 'experiment', 'arm ' .. x.name .. '/' .. arm.name, arm.percent)
    redis.call('HSET', space .. 'arm:' .. x.name .. '/' .. arm.name, 'started_ms', at)
    for _, k in ipairs(arm.knobs) do
      config_write(key, {version = version, op = 'set', who = x.BY, scope = 'arm:' .. x.name .. '/' .. arm.name, name = k[1], old = '', new = k[2]})
    end
    out[#out + 1] = 'arm ' .. arm.name .. ' ' .. number_text(arm.percent) .. ' %: ' .. knobs_text(arm)
  end
  return out
end

-- --- the report
local function named_counts(space, experiment, arm)
  local c = counts_of(space .. 'arm:' .. experiment .. '/' .. arm, {})
  setmetatable(c, {__index = function() return 0 end})
  return c
end

-- a, b: {count, of}. level: p below it is significant.
local function compared(a, b, level)
  local p, test = two_shares(a[1], a[2], b[1], b[2])
  local d, low, high = newcombe(a[1], a[2], b[1], b[2])
  return {p = p, test = test, difference = d, low = low, high = high, significant = p < level * (1 - 1e-7)} -- a p of exactly level is not, whatever its last digit
end

local function comparison_text(what, name, control, b, a, c)
  return name .. ' against ' .. control .. ', ' .. what .. ': ' .. percent_text(b[1] / b[2]) .. ' against ' .. percent_text(a[1] / a[2]) ..
    string.format(', difference %+.1f points (95 %%: %+.1f to %+.1f), p = %.2g (%s)', 100 * c.difference, 100 * c.low, 100 * c.high, c.p, c.test) ..
    (c.significant and ': significant' or ': may be chance')
end

-- How often b answers from the cache against a: words, and 1 more, -1 less, 0 not shown.
local function hits_verdict(a, b, level)
  local c = compared({a.hits, a.c.requests}, {b.hits, b.c.requests}, level)
  if c.significant and c.difference > 0 then return 'it answers more from the cache', 1 end
  if c.significant then return 'it answers less from the cache', -1 end
  local n = needed(a.hits / a.c.requests, b.hits / b.c.requests)
  local words = 'no difference in answers from the cache is shown'
  if n and n > math.min(a.c.requests, b.c.requests) then
    words = words .. ' (to see one as large as now, about ' .. grouped(n) .. ' requests an arm are needed)'
  end
  return words, 0
end

-- The same for false reuse; nil where nothing is known.
local function wrong_verdict(a, b, level)
  if a.c.checked == 0 or b.c.checked == 0 then return 'nothing is known of false reuse (set shadow_percent, or deja_feedback)', nil end
  local c = compared({a.c.wrong, a.c.checked}, {b.c.wrong, b.c.checked}, level)
  local _, high = wilson(b.c.wrong, b.c.checked)
  local bound = ' (at most ' .. percent_text(high) .. ' of its semantic hits, with 95 % confidence)'
  if c.significant and c.difference > 0 then return 'it is wrong more often' .. bound, 1 end
  if c.significant then return 'it is wrong less often' .. bound, -1 end
  return 'it is not shown to be wrong more often' .. bound, 0
end

local function verdict_of(a, b, level)
  if a.c.requests < REQUESTS_LEAST or b.c.requests < REQUESTS_LEAST then
    return 'verdict on ' .. b.name .. ': open; too few requests (at least ' .. REQUESTS_LEAST .. ' an arm)'
  end
  local hits_text, hits = hits_verdict(a, b, level)
  local wrong_text, wrong = wrong_verdict(a, b, level)
  local word = 'open'
  if wrong == 1 or (hits == -1 and wrong ~= -1) then
    word = 'keep ' .. a.name
  elseif wrong and (hits == 1 or (wrong == -1 and hits == 0)) then
    word = 'take ' .. b.name
  end
  return 'verdict on ' .. b.name .. ': ' .. word .. '; ' .. hits_text .. '; ' .. wrong_text
end

local function share_range(k, n)
  if n == 0 then return '-' end
  local low, high = wilson(k, n)
  return string.format('%d of %d: %.1f %% (%.1f to %.1f)', k, n, 100 * k / n, 100 * low, 100 * high)
end

local function table_rows(key, arms)
  local rows = {
    {'requests', function(a) return grouped(a.c.requests) end},
    {'exact hits', function(a) return of_text(a.c.exact, a.c.requests) end},
    {'semantic hits', function(a) return of_text(a.c.semantic, a.c.requests) end},
    {'followed similar', function(a) return of_text(a.c.followed, a.c.requests) end},
    {'from the cache', function(a) return of_text(a.hits, a.c.requests) end},
    {'false reuse, 95 %', function(a) return share_range(a.c.wrong, a.c.checked) end},
    {'latency p50 ms', function(a) return ms_text(quantile_ms(a.c, 0.5)) end},
    {'latency p95 ms', function(a) return ms_text(quantile_ms(a.c, 0.95)) end},
    {'tokens saved', function(a) return grouped(a.c.prompt_saved) .. ' + ' .. grouped(a.c.completion_saved) end},
    {'tokens asked', function(a) return grouped(a.c.prompt_asked) .. ' + ' .. grouped(a.c.completion_asked) end},
    {'money saved', function(a)
      local m = money(key, 'global', a.c.prompt_saved, a.c.completion_saved)
      return m and string.format('%.2f', m) or '-'
    end}}
  local out, head = {}, string.format('%-18s', '')
  for _, a in ipairs(arms) do head = head .. string.format('  %26s', a.name) end
  out[1] = head
  for _, row in ipairs(rows) do
    local line = string.format('%-18s', row[1])
    for _, a in ipairs(arms) do line = line .. string.format('  %26s', row[2](a)) end
    out[#out + 1] = line
  end
  return out
end

local function comparison_json(name, control, what, a, b, level)
  if a[2] == 0 or b[2] == 0 then return nil end
  local c = compared(a, b, level)
  return json_object({'arm', name, 'against', control, 'what', what, 'difference', c.difference, 'low', c.low, 'high', c.high, 'p', c.p, 'test', c.test,
                      'significant', c.significant})
end

local function arm_json(key, a)
  local low, high = wilson(a.c.wrong, a.c.checked)
  return json_object({
    'name', a.name, 'percent', a.percent, 'knobs', a.knobs, 'requests', a.c.requests, 'exact', a.c.exact, 'semantic', a.c.semantic,
    'coalesced', a.c.coalesced, 'followed', a.c.followed, 'miss', a.c.miss, 'errors', a.c.errors, 'checked', a.c.checked, 'wrong', a.c.wrong, 'false_reuse_low', low,
    'false_reuse_high', high, 'p50_ms', quantile_ms(a.c, 0.5) or cjson.null, 'p95_ms', quantile_ms(a.c, 0.95) or cjson.null,
    'prompt_tokens_saved', a.c.prompt_saved, 'completion_tokens_saved', a.c.completion_saved, 'prompt_tokens_asked', a.c.prompt_asked,
    'completion_tokens_asked', a.c.completion_asked,
    'money_saved', money(key, 'global', a.c.prompt_saved, a.c.completion_saved) or cjson.null})
end

local function report_json(key, f, x, arms, level)
  local arms_, comparisons, verdicts = {}, {}, {}
  for i, a in ipairs(arms) do
    arms_[i] = arm_json(key, a)
    if i > 1 then
      local first = arms[1]
      comparisons[#comparisons + 1] = comparison_json(a.name, first.name, 'from_cache', {first.hits, first.c.requests}, {a.hits, a.c.requests}, level)
      comparisons[#comparisons + 1] = comparison_json(a.name, first.name, 'false_reuse', {first.c.wrong, first.c.checked},
                                                      {a.c.wrong, a.c.checked}, level)
      verdicts[#verdicts + 1] = cjson.encode(verdict_of(first, a, level))
    end
  end
  return json_object({'name', x.name, 'state', f.state, 'started_ms', tonumber(f.started_ms), 'stopped_ms', tonumber(f.stopped_ms) or cjson.null,
                      'split', x.split, 'salt', x.salt, 'namespace', x.ns, 'arms', {json = json_list(arms_)}, 'comparisons',
                      {json = json_list(comparisons)}, 'verdicts', {json = json_list(verdicts)}})
end

local function report_lines(key, f, x, arms, level)
  local ends = tonumber(f.stopped_ms) or now_ms()
  local out = {string.format('experiment %s: %s since %s%s, %.1f h, split by %s, salt %s%s', x.name, f.state, date_text(tonumber(f.started_ms)),
                             f.stopped_ms and ' until ' .. date_text(ends) or '', (ends - tonumber(f.started_ms)) / 3600000, x.split, x.salt,
                             x.ns ~= '' and ', namespace ' .. x.ns or '')}
  for _, a in ipairs(arms) do
    out[#out + 1] = 'arm ' .. a.name .. ' ' .. number_text(a.percent) .. ' %: ' .. a.knobs_text
  end
  for _, line in ipairs(table_rows(key, arms)) do out[#out + 1] = line end
  for i = 2, #arms do
    local a, b = arms[1], arms[i]
    if a.c.requests > 0 and b.c.requests > 0 then
      local x1, x2 = {a.hits, a.c.requests}, {b.hits, b.c.requests}
      out[#out + 1] = comparison_text('from the cache', b.name, a.name, x2, x1, compared(x1, x2, level))
    end
    if a.c.checked > 0 and b.c.checked > 0 then
      local x1, x2 = {a.c.wrong, a.c.checked}, {b.c.wrong, b.c.checked}
      out[#out + 1] = comparison_text('false reuse', b.name, a.name, x2, x1, compared(x1, x2, level))
    end
    out[#out + 1] = verdict_of(a, b, level)
  end
  local changed = (tonumber(f.stop_version) or config_version(key)) - tonumber(f.version) - (f.stop_version and 1 or 0)
  if changed > 0 then out[#out + 1] = 'note: settings were changed ' .. changed .. ' times meanwhile (deja_config_history)' end
  if x.split ~= 'request' then
    out[#out + 1] = 'note: the tests take requests as independent; few ' .. x.split .. 's with many requests each make p too small'
  end
  return out
end

local function report(tag, name, json)
  local space = '{' .. tag .. '}:'
  local flat = redis.call('HGETALL', space .. 'experiment:' .. name)
  if #flat == 0 then
    local names = redis.call('ZREVRANGE', space .. 'experiments', 0, 19)
    return bad('deja_experiment_report: there is no experiment ' .. clean(name, 40) ..
               (#names > 0 and '; there are: ' .. table.concat(names, ' ') or '; none was started yet'))
  end
  local f = fields_of({'', flat})
  local x, arms = cjson.decode(f.json), {}
  for i, arm in ipairs(x.arms) do
    local c, words = named_counts(space, name, arm.name), {}
    for k, v in pairs(arm.knobs) do words[#words + 1] = k .. ' ' .. v end
    table.sort(words)
    arms[i] = {name = arm.name, percent = arm.percent, c = c, hits = c.exact + c.semantic + c.followed, knobs = arm.knobs,
               knobs_text = #words > 0 and table.concat(words, ', ') or 'as set for all'}
  end
  local level = 0.05 / (#arms - 1)
  if json then return report_json(space .. 'config', f, x, arms, level) end
  return report_lines(space .. 'config', f, x, arms, level)
end

local function list_lines(space)
  local out = {}
  for _, name in ipairs(redis.call('ZREVRANGE', space .. 'experiments', 0, 99)) do
    local f = redis.call('HMGET', space .. 'experiment:' .. name, 'state', 'started_ms', 'who', 'note')
    out[#out + 1] = name .. '  ' .. f[1] .. '  since ' .. date_text(tonumber(f[2])) .. '  by ' .. f[3] .. (f[4] ~= '' and '  "' .. f[4] .. '"' or '')
  end
  return #out > 0 and out or {'no experiment was started yet'}
end

local function deja_experiment_report(keys, args)
  local tag, problem = space_of(keys, 'deja_experiment_report')
  if not tag then return bad(problem) end
  local space, name, from, o = '{' .. tag .. '}:', nil, 1, nil
  if args[1] and string.upper(args[1]) ~= 'JSON' then name, from = args[1], 2 end
  o, problem = options_of(args, from, 'deja_experiment_report', '', 'JSON')
  if not o then return bad(problem) end
  if name == 'list' then return list_lines(space) end
  name = name or redis.call('HGET', space .. 'experiment', 'name') or redis.call('ZREVRANGE', space .. 'experiments', 0, 0)[1]
  if not name then return bad('deja_experiment_report: no experiment was started yet (deja_experiment_start)') end
  return report(tag, name, o.JSON)
end

local function deja_experiment_stop(keys, args)
  local tag, problem = space_of(keys, 'deja_experiment_stop')
  if not tag then return bad(problem) end
  local space, o = '{' .. tag .. '}:', nil
  o, problem = options_of(args, 1, 'deja_experiment_stop', 'BY NOTE', 'JSON')
  if not o then return bad(problem) end
  local name, key = redis.call('HGET', space .. 'experiment', 'name'), space .. 'config'
  if not name then return bad('deja_experiment_stop: none is running') end
  local version = redis.call('HINCRBY', key, 'version', 1)
  for _, s in ipairs(config_settings(key)) do
    if string.sub(s.scope, 1, 4) == 'arm:' then
      config_write(key, {version = version, op = 'set', who = o.BY, scope = s.scope, name = s.name, old = s.value, new = ''})
    end
  end
  config_write(key, {version = version, op = 'experiment', who = o.BY, scope = 'global', name = 'experiment ' .. name, old = 'started', new = 'stopped',
                     note = o.NOTE})
  redis.call('HSET', space .. 'experiment:' .. name, 'state', 'stopped', 'stopped_ms', now_ms(), 'stop_version', version)
  redis.call('DEL', space .. 'experiment')
  return report(tag, name, o.JSON)
end

redis.register_function('deja_experiment_start', deja_experiment_start)
redis.register_function('deja_experiment_stop', deja_experiment_stop)
redis.register_function({function_name = 'deja_experiment_report', callback = deja_experiment_report, flags = {'no-writes'}})
end
