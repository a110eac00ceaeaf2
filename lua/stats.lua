-- stats - what the cache did lately, for people.
--
-- deja_stats KEYS {ns}:config  ARGV [HOURS n] [IN namespace] [JSON]
--     The last n hours (24), of one namespace ("-" = requests without one) or all together. False reuse is known only of semantic hits
--     that somebody checked: shadow samples (knob shadow_percent) and feedback.
--     Reply: lines, or with JSON one text. Errors: ERR deja_stats ...

local HOURS_MAX = 8 * 24

local function stats_counts(tag, ns, hours)
  local last, c = math.floor(now_ms() / 3600000), {}
  for hour = last - hours + 1, last do
    counts_of('{' .. tag .. '}:stats:' .. ns .. ':' .. hour, c)
  end
  setmetatable(c, {__index = function() return 0 end})
  return c
end

local function stats_json(key, ns, hours, c)
  local low, high = wilson(c.wrong, c.checked)
  local scope = ns == 'all' and 'global' or 'ns:' .. ns
  return json_object({
    'hours', hours, 'namespace', ns, 'requests', c.requests, 'exact', c.exact, 'semantic', c.semantic, 'stale', c.stale, 'coalesced', c.coalesced, 'followed', c.followed,
    'miss', c.miss, 'bypass', c.bypass, 'errors', c.errors, 'near_misses', c.near, 'checked', c.checked, 'wrong', c.wrong, 'feedback', c.feedback,
    'false_reuse_low', low, 'false_reuse_high', high, 'judged', c.judged, 'approved', c.approved, 'vetoed', c.vetoed,
    'p50_ms', quantile_ms(c, 0.5) or cjson.null, 'p95_ms', quantile_ms(c, 0.95) or cjson.null,
    'prompt_tokens_saved', c.prompt_saved, 'completion_tokens_saved', c.completion_saved, 'prompt_tokens_asked', c.prompt_asked,
    'completion_tokens_asked', c.completion_asked,
    'money_saved', money(key, scope, c.prompt_saved, c.completion_saved) or cjson.null})
end

local function checked_text(c)
  if c.checked == 0 then return 'false reuse: nothing is known; set shadow_percent or give feedback (deja_feedback)' end
  local low, high = wilson(c.wrong, c.checked)
  return 'false reuse: ' .. grouped(c.wrong) .. ' of ' .. grouped(c.checked) .. ' checked semantic hits were wrong, ' ..
    percent_text(c.wrong / c.checked) ..
    ' (' .. grouped(c.feedback) .. ' by feedback; 95 %: ' .. percent_text(low) .. ' to ' .. percent_text(high) .. ')'
end

local function deja_stats(keys, args)
  local tag, problem = space_of(keys, 'deja_stats')
  if not tag then return bad(problem) end
  local o
  o, problem = options_of(args, 1, 'deja_stats', 'HOURS IN', 'JSON')
  if not o then return bad(problem) end
  local hours, ns = o.HOURS and number(o.HOURS, 1, HOURS_MAX) or (not o.HOURS and 24), o.IN or 'all'
  if not hours then return bad('deja_stats: HOURS may be a whole number from 1 to ' .. HOURS_MAX) end
  local names = redis.call('ZRANGE', '{' .. tag .. '}:stats:names', 0, -1)
  if ns ~= 'all' and not redis.call('ZSCORE', '{' .. tag .. '}:stats:names', ns) then
    return bad('deja_stats: nothing was counted for the namespace "' .. clean(ns, 64) .. '"; there are: ' .. table.concat(names, ' '))
  end
  local key, c = '{' .. tag .. '}:config', stats_counts(tag, ns, hours)
  if o.JSON then return stats_json(key, ns, hours, c) end
  local hits, cost = c.exact + c.semantic, money(key, ns == 'all' and 'global' or 'ns:' .. ns, c.prompt_saved, c.completion_saved)
  return {
    'last ' .. hours .. ' h, ' .. (ns == 'all' and 'all namespaces: ' .. table.concat(names, ' ') or 'namespace ' .. ns),
    'requests: ' .. grouped(c.requests) .. ', from the cache ' .. of_text(hits, c.requests) .. ': exact ' .. of_text(c.exact, c.requests) ..
      ', semantic ' .. of_text(c.semantic, c.requests),
    'the others: shared a call ' .. grouped(c.coalesced) .. ' (' .. grouped(c.followed) .. ' of a similar question), asked the model ' .. grouped(c.miss) .. ', bypass ' .. grouped(c.bypass) ..
      ', stale ' .. grouped(c.stale) .. ', errors ' .. grouped(c.errors),
    checked_text(c),
    'near misses: ' .. grouped(c.near) .. '; judged ' .. grouped(c.judged) .. ': approved ' .. grouped(c.approved) .. ', vetoed ' .. grouped(c.vetoed),
    'latency: p50 ' .. ms_text(quantile_ms(c, 0.5)) .. ' ms, p95 ' .. ms_text(quantile_ms(c, 0.95)) .. ' ms',
    'tokens saved: ' .. grouped(c.prompt_saved) .. ' prompt, ' .. grouped(c.completion_saved) .. ' completion' ..
      (cost and string.format(', money %.2f', cost) or ' (set price_prompt and price_completion for money)')}
end

redis.register_function({function_name = 'deja_stats', callback = deja_stats, flags = {'no-writes'}})
