-- Stands in the queue. It grants nothing: a key that is free, that holds the value, or that is
-- reserved for the member, is reserved for the first in the queue that hears of it.
--
--     KEYS: key, queue, last, roll
--     ARGV: window ms, member, ticket, final (0 or 1), keep ms, grace seconds, renew (0 or 1)
--         [, value]
--
-- It returns the ticket that the member has now; how many are before the member, or -1 if the key
-- is reserved for it; and the milliseconds until the key expires if none is, or -1. A ticket that
-- is not final becomes greater than any that the node has heard of. The greatest is kept under
-- last, because those whose turn it is are not in the queue, and may come back. The queue and last
-- expire unless somebody comes, or renews them; last also begins anew with a greater ticket. To
-- renew them every time was 8 % of the commands of 256 processes that come once.
--
-- What was reserved for the member goes to the first in the queue. That one is told, and has it
-- even if it does not listen: it may be deaf on this node only, and the two would keep each other
-- from a quorum for ever. If it were not told, it would learn that when it asks again: one of
-- 135 crowds of 16 processes that come once began 60 to 280 ms late.
--
-- The value is that of an attempt of the member's that this node has refused. A client that sends
-- commands twice may have been granted it nevertheless.
--
-- A key that nobody has released calls the roll: somebody is dead, and may not be the only one.
-- Those who do not stand again within the grace leave the queue when that happens next. Until then
-- they are kept under roll. A member with 300 or more before it is kept there from the start, with
-- 10 ms more for each of them: it asks less often. One that has just come is not there yet.
-- hears.lua is sent in front.

local key, queue, member = KEYS[1], KEYS[2], ARGV[2]
local ticket, v, reserved, roll = tonumber(ARGV[3]), call('GET', key), '~' .. member, KEYS[4]
if v == reserved and ARGV[4] == '0' then return {ticket, -1, -1} end
local last = tonumber(call('GET', KEYS[3]) or 0) or 0
if ARGV[4] == '0' then ticket = math.max(ticket, last + 1) end
local text = string.format('%.0f', ticket)
local came = call('ZADD', queue, text, member) == 1
local renews = came or ARGV[7] == '1'
if ticket > last then
	call('SET', KEYS[3], text, 'PX', ARGV[5])
elseif renews then
	call('PEXPIRE', KEYS[3], ARGV[5])
end
if renews then call('PEXPIRE', queue, ARGV[5]) end
local rank, now = call('ZRANK', queue, member)
if rank >= 300 then
	now = tonumber(call('TIME')[1])
	call('ZADD', roll, now + ARGV[6] + math.floor(rank / 100), member)
	call('PEXPIRE', roll, ARGV[5])
elseif ARGV[4] == '1' or not came then
	call('ZREM', roll, member)
end
if not v then
	now = now or tonumber(call('TIME')[1])
	for _, dead in ipairs(call('ZRANGEBYSCORE', roll, '-inf', now)) do
		if dead ~= member then call('ZREM', queue, dead) end
		call('ZREM', roll, dead)
	end
	for _, other in ipairs(call('ZRANGEBYSCORE', queue, '-inf', '+inf')) do
		if other ~= member then call('ZADD', roll, 'NX', now + ARGV[6], other) end
	end
	call('PEXPIRE', roll, ARGV[5])
end
if not v or v == reserved or v == ARGV[8] then
	local first
	while true do
		local to = call('ZPOPMIN', queue)[1]
		first = first or to
		if not to or to == member or hears(to) or v == reserved then
			first = to or first
			break
		end
	end
	call('SET', key, '~' .. first, 'PX', ARGV[1])
	if first == member then return {ticket, -1, -1} end
	rank = call('ZRANK', queue, member) or 0
end
return {ticket, rank, rank == 0 and call('PTTL', key) or -1}
