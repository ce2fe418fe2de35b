// Rewards a rollout that ended before, by its id.
import { reward } from './rollout.ts';

reward(0.25, 'judge', process.env.ROLLOUT_ID!);
