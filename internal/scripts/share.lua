-- Acquires for a reader. hears.lua, seats.lua, and acquire.lua as a function, are sent in front.
--
--     KEYS: key [fence], queue, seats
--     ARGV: those of acquire.lua, then window ms, member
--
-- It returns what acquire.lua does. A key is free if nobody or readers have it, or if it is
-- reserved for the member. A newcomer's member is "". It does not pass those who queue while others
-- read. The member of a holder that sets its key again is "*": to that, a key is free that is
-- reserved for anybody.
--
-- Seats that have ended are dropped when others come. The key keeps its time until the seat is
-- there, in case that may not be written. If the counter cannot be used, acquire.lua takes the
-- marker for the value of one who has been granted the key before, and returns the counter as it
-- was. That is no grant: the last token but one is the greatest that a reader has.

queue = table.remove(KEYS)
local member, window = table.remove(ARGV), table.remove(ARGV)
local value, expiry, held = ARGV[1], tonumber(ARGV[2]), call('GET', key)
local reads = held == shared
if held and not reads and held ~= '~' .. member
	and not (member == '*' and string.sub(held, 1, 14) == '~redlock:turn:') then
	return 0
end
if reads and member == '' and call('EXISTS', queue) == 1 and not sits(value) then
	admit(window)
	if call('EXISTS', queue) == 1 then return 0 end
elseif not reads and call('EXISTS', seats) == 1 then
	call('DEL', seats)
end
ARGV[1], ARGV.free = shared, held
ARGV[2] = math.max(expiry, reads and call('PTTL', key) or 0)
local c = acquire()
if type(c) ~= 'number' or c < 1 then return c end
if KEYS[2] and (c == 9007199254740991 or c < tonumber(ARGV[3])) then
	return redis.error_reply('ERR redlock: the fence counter ' .. KEYS[2] .. ' is at its end')
end
if member ~= '' then
	call('ZREM', seats, '~' .. member)
	pcall('ZREM', queue, member)
end
if reads then call('ZREMRANGEBYSCORE', seats, '-inf', now) end
call('ZADD', seats, now + expiry, value)
keep(not reads and now + expiry)
admit(window)
return c
