-- config - the knobs of the cache's policy: typed, ranged, versioned, in force on every gateway within a second. The table of knobs is
-- made from cache/knobs.c and appended to this library when it is loaded (knobs{...} at its end), so Redis checks what the program
-- means. Settings of a wider scope hold where a narrower one says nothing: gateway's start options < global < ns:NAMESPACE < arm:EXPERIMENT/ARM.
-- Limits have scopes of their own: global (each tenant) < tenant:T; model:M (each tenant at that model) < tenant:T/model:M; all and
-- all/model:M (everybody together). See limits.lua and docs/limits.md.
--
-- Keys behind the tag: {ns}:config  hash  version, and "scope name" -> value
--                      {ns}:config:log  stream  one item a change: version op who scope name old new note
--
-- deja_config_set KEYS {ns}:config  ARGV name value [IN scope] [BY who] [NOTE text]
--     scope: global (when left out), ns:NAMESPACE or arm:EXPERIMENT/ARM; of limits tenant:T, model:M, tenant:T/model:M, all or
--     all/model:M; of prices model:M too. value unset = nothing is set here any more; default = the
--     table's default. Reply: what changed and the new version, or that nothing changed.
--     Errors: ERR no knob is called ...; ERR name: what it may be; ERR scope ...
-- deja_config_get KEYS {ns}:config  ARGV [name | all] [IN scope] [SINCE version] [JSON]
--     Reply: lines for people: what is set (no name), every knob (all), or one knob with its range and meaning. With JSON one text:
--     {"version","settings":[{"scope","name","value"}],"experiment","changes":[...later than SINCE]}.
-- deja_config_history KEYS {ns}:config  ARGV [count] [JSON]
--     Reply: the last changes, newest first (20).
-- deja_config_rollback KEYS {ns}:config  ARGV [TO version] [BY who] [NOTE text]
--     All settings as they were in that version (without TO: before the last change). A change of its own, so it can be undone too.
--     Reply: lines, what changed. Errors: ERR that version is not in the history; ERR nothing to undo.

local KNOBS, KNOB_NAMES = {}, {}
local TEXTS = {} -- of config_text.lua

-- called once, at the end of the library, where the standard functions are not there yet
local function knobs(list)
  for i = 1, #list do
    KNOBS[list[i].name] = list[i]
    KNOB_NAMES[i] = list[i].name
  end
end

local HISTORY_MAX = 10000
local SCOPE_BYTES_MAX = 160
local SETTINGS_MAX = 4096 -- as gateway/settings.h

local function knob_bounds(k)
  return number_text(k.min) .. ' to ' .. number_text(k.max) .. (k.unit ~= '' and ' ' .. k.unit or '')
end

local function knob_range(k)
  if k.type == 'bool' then return 'yes or no' end
  if k.type == 'choice' then return 'one of ' .. k.choices end
  if k.type == 'text' then return 'lines separated by ; as in: ' .. k.choices end
  return (k.type == 'int' and 'a whole number from ' or 'a number from ') .. knob_bounds(k)
end

local BOOLS = {yes = 'yes', on = 'yes', ['true'] = 'yes', ['1'] = 'yes', no = 'no', off = 'no', ['false'] = 'no', ['0'] = 'no'}

-- The value as it is stored, or nil and what would be right.
local function knob_value(k, text)
  local lower = string.lower(text)
  if lower == 'default' then return k.preset end
  if k.type == 'text' then return TEXTS.value(k, text) end
  if k.type == 'bool' then
    if BOOLS[lower] then return BOOLS[lower] end
  elseif k.type == 'choice' then
    for word in string.gmatch(k.choices, '%S+') do
      if word == lower then return word end
    end
  else
    local n = string.match(text, '^%s*[-+0-9.eE]+%s*$') and tonumber(text)
    if n and n == n and n >= k.min and n <= k.max and (k.type ~= 'int' or n == math.floor(n)) then return number_text(n) end
    if n and (k.type ~= 'int' or n == math.floor(n)) and (n < k.min or n > k.max) then
      return nil, k.name .. ': ' .. clean(text, 40) .. ' is too ' .. (n < k.min and 'low' or 'high') .. '; it may be ' .. knob_bounds(k)
    end
  end
  return nil, k.name .. ': expected ' .. knob_range(k) .. ', not "' .. clean(text, 40) .. '"'
end

local function knob_named(name)
  local k = KNOBS[string.lower(name)]
  if k then return k end
  return nil, 'no knob is called "' .. clean(name, 40) .. '"' .. did_you_mean(name, KNOB_NAMES) .. ' (deja_config_get ... all lists them)'
end

-- 'tenant:T', 'model:M', 'tenant:T/model:M', 'all' or 'all/model:M' -> who ('tenant:T', 'all' or ''), model ('model:M' or ''); else nil
local function limit_scope(text)
  local who, model = string.match(text, '^([^/]+)/(model:.+)$')
  if not who and string.match(text, '^model:') then who, model = '', text end
  if not who then who, model = text, '' end
  if not (who == '' or who == 'all' or string.match(who, '^tenant:[%w._-]+$')) then return nil end
  if model ~= '' and not string.match(model, '^model:[%w._:/@+-]+$') then return nil end
  return who, model
end

-- nil, or why the knob k is not set in this scope
local function scope_problem(k, scope)
  if scope == 'global' then return nil end
  if k.type == 'text' then return k.name .. ' may be set in global only, not in ' .. scope end
  local who, model = limit_scope(scope)
  if k.family == 'limit' then
    if not who then return k.name .. ' may be set in global, tenant:T, model:M, tenant:T/model:M, all or all/model:M, not in ' .. scope end
    if who == 'all' and k.name ~= 'limit_shadow' and not string.match(k.name, '^limit_[rtcb]') then
      return k.name .. ' is of a tenant or a model, not of all together'
    end
  elseif who and not (k.family == 'price' and who == '' and model ~= '') then
    return k.name .. ' may be set in global, ns:NAMESPACE or arm:EXPERIMENT/ARM' .. (k.family == 'price' and ', or model:M' or '') ..
      ', not in ' .. scope
  end
end

local function scope_named(tag, text)
  if not text or text == 'global' then return 'global' end
  if #text <= SCOPE_BYTES_MAX and string.match(text, '^ns:[%w._:-]+$') then return text end
  if #text <= SCOPE_BYTES_MAX and limit_scope(text) then return text end
  local experiment, arm = string.match(text, '^arm:([%w._-]+)/([%w._-]+)$')
  if experiment and #text <= SCOPE_BYTES_MAX then
    if redis.call('HEXISTS', '{' .. tag .. '}:experiment', 'arm ' .. experiment .. '/' .. arm) == 1 then return text end
    return nil, 'there is no running experiment with the arm ' .. experiment .. '/' .. arm
  end
  return nil, 'scope "' .. clean(text, 80) .. '" is none: it may be global, ns:NAMESPACE or arm:EXPERIMENT/ARM; ' ..
    'of limits tenant:T, model:M, tenant:T/model:M, all, all/model:M'
end

local function config_version(key)
  return tonumber(redis.call('HGET', key, 'version') or 0) or 0
end

local function config_value(key, scope, name)
  return redis.call('HGET', key, scope .. ' ' .. name) or ''
end

-- new '' = unset. Writes the value and its line of history; the caller has made the version.
local function config_write(key, c)
  local field = c.scope .. ' ' .. c.name
  if c.new == '' then
    redis.call('HDEL', key, field)
  else
    redis.call('HSET', key, field, c.new)
  end
  redis.call('XADD', key .. ':log', 'MAXLEN', '~', HISTORY_MAX, '*', 'version', c.version, 'op', c.op, 'who', clean(c.who or 'redis-cli', 64),
             'scope', c.scope, 'name', c.name, 'old', c.old, 'new', c.new, 'note', clean(c.note or '', 200))
end

local function shown(value)
  return value == '' and 'unset' or value
end

local function change_text(f)
  local what = f.op == 'experiment' and f.name .. ' ' .. f.new or f.name .. ' ' .. shown(f.old) .. ' -> ' .. shown(f.new)
  local where = f.scope == 'global' and '' or ' (' .. f.scope .. ')'
  return what .. where
end

local function deja_config_set(keys, args)
  local tag, problem = space_of(keys, 'deja_config_set')
  if not tag then return bad(problem) end
  if #args < 2 then return bad('deja_config_set needs a name and a value, as in: FCALL deja_config_set 1 {deja}:config threshold_en 0.95') end
  local k, o, scope, value
  k, problem = knob_named(args[1])
  if not k then return bad(problem) end
  o, problem = options_of(args, 3, 'deja_config_set', 'IN BY NOTE')
  if not o then return bad(problem) end
  scope, problem = scope_named(tag, o.IN)
  problem = not scope and problem or scope_problem(k, scope)
  if problem then return bad(problem) end
  if string.lower(args[2]) == 'unset' then
    value = ''
  elseif utf8_text(args[2]) ~= args[2] then
    return bad(k.name .. ': the value is not UTF-8 text')
  else
    value, problem = knob_value(k, args[2])
    if not value then return bad(problem) end
  end
  local key = '{' .. tag .. '}:config'
  local old = config_value(key, scope, k.name)
  if old == value then return 'unchanged: ' .. k.name .. ' is ' .. shown(value) .. ' in version ' .. config_version(key) end
  if old == '' and redis.call('HLEN', key) > SETTINGS_MAX then
    return bad('there are ' .. SETTINGS_MAX .. ' settings already, the most gateways take: unset some first')
  end
  local c = {version = redis.call('HINCRBY', key, 'version', 1), op = 'set', who = o.BY, scope = scope, name = k.name, old = old, new = value,
             note = o.NOTE}
  config_write(key, c)
  return 'version ' .. c.version .. ': ' .. change_text(c) .. (k.type == 'text' and value ~= '' and TEXTS.unserved(key, k, value) or '')
end

-- every setting, sorted: {scope, name, value}
local function config_settings(key)
  local flat, out = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    local scope, name = string.match(flat[i], '^(%S+) (%S+)$')
    if scope then out[#out + 1] = {scope = scope, name = name, value = flat[i + 1]} end
  end
  table.sort(out, function(a, b) return a.scope .. ' ' .. a.name < b.scope .. ' ' .. b.name end)
  return out
end

local function history_items(key, count)
  local out = {}
  for _, item in ipairs(redis.call('XREVRANGE', key .. ':log', '+', '-', 'COUNT', count)) do
    out[#out + 1] = fields_of(item)
  end
  return out
end

local function change_json(f)
  return json_object({'version', tonumber(f.version) or 0, 'at_ms', tonumber(string.match(f.id, '^%d+')) or 0, 'op', f.op, 'who', f.who, 'scope',
                      f.scope, 'name', f.name, 'old', f.old, 'new', f.new, 'note', f.note})
end

local CHANGES_TOLD_MAX = 100

local function config_json(tag, key, since)
  local settings, changes = {}, {}
  for _, s in ipairs(config_settings(key)) do
    settings[#settings + 1] = json_object({'scope', s.scope, 'name', s.name, 'value', s.value})
  end
  if since then
    for _, f in ipairs(history_items(key, CHANGES_TOLD_MAX)) do
      if (tonumber(f.version) or 0) <= since then break end
      table.insert(changes, 1, change_json(f))
    end
  end
  local experiment = redis.call('HGET', '{' .. tag .. '}:experiment', 'json') or 'null'
  return json_object({'version', config_version(key), 'settings', {json = json_list(settings)}, 'experiment', {json = experiment}, 'changes',
                      {json = json_list(changes)}})
end

-- The scopes asked for a value, narrowest first. What is limited belongs to its own level: a tenant, a tenant at a model, everybody.
local function scope_chain(scope, name)
  local who, model = limit_scope(scope)
  if not who then return {scope, 'global'} end
  local level = string.match(name, '^limit_[rtcb]') ~= nil -- requests, tokens, concurrency, budget
  if model == '' then return level and who == 'all' and {scope} or {scope, 'global'} end
  if level then return who ~= 'all' and {scope, model} or {scope} end
  return {scope, who == 'all' and 'all' or model, who == '' and 'global' or who, 'global'}
end

-- {scope, value} from the narrowest scope that says something, seen from scope
local function config_effective(key, scope, name)
  for _, s in ipairs(scope_chain(scope, name)) do
    local v = config_value(key, s, name)
    if v ~= '' then return v, s end
  end
  return nil
end

local function knob_line(key, scope, k)
  local value, where = config_effective(key, scope, k.name)
  if value then return k.name .. ' = ' .. value .. (where == 'global' and '' or ' (' .. where .. ')') end
  if k.type == 'text' then return k.name .. ' is not set: what gateways were started with holds' end
  return k.name .. ' = ' .. k.preset .. ' (default)'
end

local function knob_lines(key, scope, k)
  local out = {knob_line(key, scope, k), 'may be ' .. knob_range(k) .. ': ' .. k.help}
  for _, s in ipairs(config_settings(key)) do
    if s.name == k.name then out[#out + 1] = 'set to ' .. s.value .. ' in ' .. s.scope end
  end
  return out
end

local function deja_config_get(keys, args)
  local tag, problem = space_of(keys, 'deja_config_get')
  if not tag then return bad(problem) end
  local key, from, name = '{' .. tag .. '}:config', 1, nil
  if args[1] and not string.find(' IN SINCE JSON ', ' ' .. string.upper(args[1]) .. ' ', 1, true) then name, from = args[1], 2 end
  local o, scope, k
  o, problem = options_of(args, from, 'deja_config_get', 'IN SINCE', 'JSON')
  if not o then return bad(problem) end
  if o.JSON then return config_json(tag, key, tonumber(o.SINCE)) end
  scope, problem = scope_named(tag, o.IN)
  if not scope then return bad(problem) end
  if name and string.lower(name) ~= 'all' then
    k, problem = knob_named(name)
    if not k then return bad(problem) end
    return knob_lines(key, scope, k)
  end
  local out = {'version ' .. config_version(key)}
  if name then
    for _, each in ipairs(KNOB_NAMES) do
      out[#out + 1] = knob_line(key, scope, KNOBS[each])
    end
    return out
  end
  for _, s in ipairs(config_settings(key)) do
    out[#out + 1] = s.name .. ' = ' .. s.value .. (s.scope == 'global' and '' or ' (' .. s.scope .. ')')
  end
  if #out == 1 then out[2] = 'nothing is set: every gateway goes by its start options (all shows the defaults)' end
  return out
end

local function deja_config_history(keys, args)
  local tag, problem = space_of(keys, 'deja_config_history')
  if not tag then return bad(problem) end
  local count, from = 20, 1
  if args[1] and string.upper(args[1]) ~= 'JSON' then
    count, from = number(args[1], 1, HISTORY_MAX), 2
    if not count then return bad('deja_config_history: count must be a whole number from 1 to ' .. HISTORY_MAX) end
  end
  local o
  o, problem = options_of(args, from, 'deja_config_history', '', 'JSON')
  if not o then return bad(problem) end
  local out = {}
  for _, f in ipairs(history_items('{' .. tag .. '}:config', count)) do
    local at = tonumber(string.match(f.id, '^%d+')) or 0
    out[#out + 1] = o.JSON and change_json(f) or
      'version ' .. f.version .. '  ' .. date_text(at) .. '  ' .. f.who .. ': ' .. change_text(f) ..
      (f.op == 'rollback' and ', by rollback' or '') .. (f.note ~= '' and '  "' .. f.note .. '"' or '')
  end
  return o.JSON and json_list(out) or out
end

-- scope..' '..name -> what it was in version target; or nil and what is wrong
local function config_then(key, target)
  local was, version = {}, config_version(key)
  if version == 0 then return nil, 'there is nothing to undo: nothing was ever set' end
  if target < 0 or target >= version then
    return nil, 'version must be from 0 to ' .. (version - 1) .. ': now is version ' .. version
  end
  local oldest = version + 1
  for _, f in ipairs(history_items(key, HISTORY_MAX * 2)) do
    local v = tonumber(f.version) or 0
    if v <= target then oldest = v break end
    oldest = v
    if f.op == 'experiment' and f.new == 'started' and redis.call('EXISTS', (string.gsub(key, ':config$', ':experiment'))) == 1 then
      return nil, 'an experiment was started since version ' .. target .. ' and is running: stop it first (deja_experiment_stop)'
    end
    if f.op ~= 'experiment' then was[f.scope .. ' ' .. f.name] = f.old end
  end
  if oldest > target + 1 then return nil, 'the history begins with version ' .. oldest .. ', so version ' .. target .. ' is not known any more' end
  return was
end

local function deja_config_rollback(keys, args)
  local tag, problem = space_of(keys, 'deja_config_rollback')
  if not tag then return bad(problem) end
  local o, was
  o, problem = options_of(args, 1, 'deja_config_rollback', 'TO BY NOTE')
  if not o then return bad(problem) end
  local key = '{' .. tag .. '}:config'
  local target = o.TO and number(o.TO, 0, 2 ^ 52) or (not o.TO and config_version(key) - 1)
  if not target then return bad('deja_config_rollback: TO needs a version, a whole number') end
  was, problem = config_then(key, target)
  if not was then return bad('deja_config_rollback: ' .. problem) end
  local changes = {}
  for field, old in pairs(was) do
    local scope, name = string.match(field, '^(%S+) (%S+)$')
    local now = config_value(key, scope, name)
    -- the arms of an experiment that has ended are not brought back
    if now ~= old and KNOBS[name] and scope_named(tag, scope) then
      changes[#changes + 1] = {scope = scope, name = name, old = now, new = old}
    end
  end
  if #changes == 0 then return {'unchanged: the settings are those of version ' .. target .. ' already'} end
  table.sort(changes, function(a, b) return a.scope .. a.name < b.scope .. b.name end)
  local version = redis.call('HINCRBY', key, 'version', 1)
  local out = {'version ' .. version .. ': as in version ' .. target}
  for _, c in ipairs(changes) do
    c.version, c.op, c.who, c.note = version, 'rollback', o.BY, o.NOTE
    config_write(key, c)
    out[#out + 1] = change_text(c)
  end
  return out
end

redis.register_function('deja_config_set', deja_config_set)
redis.register_function({function_name = 'deja_config_get', callback = deja_config_get, flags = {'no-writes'}})
redis.register_function({function_name = 'deja_config_history', callback = deja_config_history, flags = {'no-writes'}})
redis.register_function('deja_config_rollback', deja_config_rollback)
