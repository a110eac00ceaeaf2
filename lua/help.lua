-- help - what can be called, from redis-cli. The texts are the heads of these files: the program that loads the library appends them (see
-- cache/library.c), so nothing is said twice.
--
-- deja_help KEYS none  ARGV [command]
--     As in: FCALL deja_help 0 deja_config_set. Reply: lines; without a command, what there is.

local HELP = {}

-- called at the end of the library for each function that a head describes
local function help(name, text)
  HELP[name] = text
end

local FOR_PEOPLE = {
  {'deja_config_set', 'change a knob, everywhere within a second'}, {'deja_config_get', 'what is set, and what may be'},
  {'deja_config_history', 'who changed what, when and why'}, {'deja_config_rollback', 'undo'},
  {'deja_stats', 'hits, false reuse, latency, savings'}, {'deja_review', 'near misses and judged pairs: approve, veto, revoke'},
  {'deja_feedback', 'an answer was wrong, or right'}, {'deja_forget', 'remove answers by entry, prompt, tag, namespace, model, tenant'},
  {'deja_wording', 'another wording of a stored question, or one that must never get its answer'},
  {'deja_seeds', 'what was loaded with deja seed'},
  {'deja_experiment_start', 'compare arms that differ in knobs'}, {'deja_experiment_report', 'what came of it'},
  {'deja_experiment_stop', 'end it'}, {'deja_limit_status', 'what tenants use of their limits'},
  {'deja_limit_reset', 'empty a tenant\'s limits'}, {'deja_batches', 'batches at work: how far each is, what waits'}, {'deja_help', 'this'}}

local function help_list()
  local out, listed, others = {'FCALL NAME 1 {deja}:config ...   ({deja} is the key space; deja_help 0 NAME says more)'}, {}, {}
  for _, c in ipairs(FOR_PEOPLE) do
    out[#out + 1] = string.format('%-24s %s', c[1], c[2])
    listed[c[1]] = true
  end
  for name in pairs(HELP) do
    if not listed[name] then others[#others + 1] = name end
  end
  table.sort(others)
  out[#out + 1] = 'called by gateways: ' .. table.concat(others, ' ')
  return out
end

local function deja_help(keys, args)
  if #keys > 0 or #args > 1 then return bad('deja_help takes no key and at most one command, as in: FCALL deja_help 0 deja_stats') end
  if not args[1] then return help_list() end
  local name, names = string.lower(args[1]), {}
  if not string.find(name, '^deja_') then name = 'deja_' .. name end
  for each in pairs(HELP) do
    names[#names + 1] = each
  end
  table.sort(names)
  if not HELP[name] then return bad('deja_help: there is no ' .. clean(args[1], 40) .. did_you_mean(name, names)) end
  local out = {}
  for line in string.gmatch(HELP[name], '[^\n]+') do
    out[#out + 1] = line
  end
  return out
end

redis.register_function({function_name = 'deja_help', callback = deja_help, flags = {'no-writes'}})
